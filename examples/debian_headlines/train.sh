#!/usr/bin/env bash
# Trains a model that writes titles for the descriptions of Debian's packages.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
