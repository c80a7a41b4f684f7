#!/usr/bin/env bash
# Trains a language model of WikiText-103.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
