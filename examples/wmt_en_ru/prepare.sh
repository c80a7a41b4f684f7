#!/usr/bin/env bash
# Makes the training data of WMT English-Russian without UN and Paracrawl.
set -euo pipefail
# shellcheck source=examples/lib/prepare.sh
source "$(dirname "$0")/../lib/prepare.sh"
