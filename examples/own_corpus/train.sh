#!/usr/bin/env bash
# Trains a model on two texts of your own.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
