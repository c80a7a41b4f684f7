#!/usr/bin/env bash
# Trains a model on WMT 2014 English-German.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
