#!/usr/bin/env bash
# Makes the training data of a language model of WikiText-103.
set -euo pipefail
# shellcheck source=examples/lib/prepare.sh
source "$(dirname "$0")/../lib/prepare.sh"
