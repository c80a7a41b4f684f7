#!/usr/bin/env bash
# Translates and scores the test set of WMT 2014 English-German.
set -euo pipefail
# shellcheck source=examples/lib/evaluate.sh
source "$(dirname "$0")/../lib/evaluate.sh"
