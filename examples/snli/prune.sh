#!/usr/bin/env bash
# Prunes heads of the encoder of classifiers of SNLI.
set -euo pipefail
# shellcheck source=examples/lib/prune.sh
source "$(dirname "$0")/../lib/prune.sh"
