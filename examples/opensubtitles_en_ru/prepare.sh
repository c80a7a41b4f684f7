#!/usr/bin/env bash
# Makes the training data of OpenSubtitles2018 English-Russian.
source "$(dirname "$0")/../lib/prepare.sh"
