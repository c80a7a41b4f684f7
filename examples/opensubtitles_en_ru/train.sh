#!/usr/bin/env bash
# Trains a model on OpenSubtitles2018 English-Russian.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
