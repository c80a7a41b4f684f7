#!/usr/bin/env bash
# Trains a model on IWSLT 2017 German-English.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
