#!/usr/bin/env bash
# Trains a model on OpenSubtitles2018 English-Russian.
source "$(dirname "$0")/../lib/train.sh"
