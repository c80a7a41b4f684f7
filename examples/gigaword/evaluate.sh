#!/usr/bin/env bash
# Writes and scores summaries of the test set of Gigaword.
set -euo pipefail
# shellcheck source=examples/lib/evaluate_summaries.sh
source "$(dirname "$0")/../lib/evaluate_summaries.sh"
