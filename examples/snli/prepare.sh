#!/usr/bin/env bash
# Makes training data of SNLI: premise, hypothesis, and whether the one entails the other.
set -euo pipefail
# shellcheck source=examples/lib/prepare_classifier.sh
source "$(dirname "$0")/../lib/prepare_classifier.sh"
