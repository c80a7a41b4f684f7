#!/usr/bin/env bash
# Translates and scores the test descriptions of Debian's packages, from English to German.
set -euo pipefail
# shellcheck source=examples/lib/evaluate.sh
source "$(dirname "$0")/../lib/evaluate.sh"
