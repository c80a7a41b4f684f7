#!/usr/bin/env bash
# Makes the training data of the Kyoto Free Translation Task, Japanese-English.
set -euo pipefail
# shellcheck source=examples/lib/prepare.sh
source "$(dirname "$0")/../lib/prepare.sh"
