#!/usr/bin/env bash
# Prunes models of OpenSubtitles2018 English-Russian.
set -euo pipefail
# shellcheck source=examples/lib/prune.sh
source "$(dirname "$0")/../lib/prune.sh"
