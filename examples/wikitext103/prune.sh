#!/usr/bin/env bash
# Prunes heads of language models of WikiText-103.
set -euo pipefail
# shellcheck source=examples/lib/prune.sh
source "$(dirname "$0")/../lib/prune.sh"
