#!/usr/bin/env bash
# Translates and scores the test set of two texts of your own.
set -euo pipefail
# shellcheck source=examples/lib/evaluate.sh
source "$(dirname "$0")/../lib/evaluate.sh"
