#!/usr/bin/env bash
# Classifies the test verses, scores them, and shows the words that attention selects.
set -euo pipefail
# shellcheck source=examples/lib/evaluate_classifier.sh
source "$(dirname "$0")/../lib/evaluate_classifier.sh"
