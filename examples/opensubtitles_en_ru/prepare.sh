#!/usr/bin/env bash
# Makes the training data of OpenSubtitles2018 English-Russian.
set -euo pipefail
# shellcheck source=examples/lib/prepare.sh
source "$(dirname "$0")/../lib/prepare.sh"
