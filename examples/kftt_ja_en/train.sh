#!/usr/bin/env bash
# Trains a model on the Kyoto Free Translation Task, Japanese-English.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
