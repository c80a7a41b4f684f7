#!/usr/bin/env bash
# Prunes models of WMT English-Russian without UN and Paracrawl.
set -euo pipefail
# shellcheck source=examples/lib/prune.sh
source "$(dirname "$0")/../lib/prune.sh"
