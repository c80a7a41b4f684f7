#!/usr/bin/env bash
# Prunes models of CNN/Daily Mail.
set -euo pipefail
# shellcheck source=examples/lib/prune.sh
source "$(dirname "$0")/../lib/prune.sh"
