#!/usr/bin/env bash
# Trains a classifier of Bible verses.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
