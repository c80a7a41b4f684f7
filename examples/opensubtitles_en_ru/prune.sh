#!/usr/bin/env bash
# Prunes models of OpenSubtitles2018 English-Russian.
source "$(dirname "$0")/../lib/prune.sh"
