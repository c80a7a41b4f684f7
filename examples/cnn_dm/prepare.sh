#!/usr/bin/env bash
# Makes the training data of CNN/Daily Mail.
set -euo pipefail
# shellcheck source=examples/lib/prepare.sh
source "$(dirname "$0")/../lib/prepare.sh"
