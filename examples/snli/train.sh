#!/usr/bin/env bash
# Trains a classifier of the pairs of SNLI.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
