#!/usr/bin/env bash
# Translates and scores the test set of OpenSubtitles2018 English-Russian.
set -euo pipefail
# shellcheck source=examples/lib/evaluate.sh
source "$(dirname "$0")/../lib/evaluate.sh"
