#!/usr/bin/env bash
# Prunes models that translate the descriptions of Debian's packages from English to German.
set -euo pipefail
# shellcheck source=examples/lib/prune.sh
source "$(dirname "$0")/../lib/prune.sh"
