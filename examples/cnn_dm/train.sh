#!/usr/bin/env bash
# Trains a model on CNN/Daily Mail.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
