#!/usr/bin/env bash
# Trains a model on WMT English-Russian without UN and Paracrawl.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
