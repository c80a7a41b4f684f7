#!/usr/bin/env bash
# Trains a model on WMT 2016 Romanian-English.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
