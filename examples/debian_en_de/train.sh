#!/usr/bin/env bash
# Trains a model that translates the descriptions of Debian's packages from English to German.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
