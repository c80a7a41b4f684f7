#!/usr/bin/env bash
# Translates and scores the test set of OpenSubtitles2018 English-Russian.
source "$(dirname "$0")/../lib/evaluate.sh"
