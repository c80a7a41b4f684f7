#!/usr/bin/env bash
# Makes the training data of WMT 2014 English-German.
set -euo pipefail
# shellcheck source=examples/lib/prepare.sh
source "$(dirname "$0")/../lib/prepare.sh"
