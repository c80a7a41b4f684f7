#!/usr/bin/env bash
# Holds trained classifiers of SNLI side by side.
set -euo pipefail
# shellcheck source=examples/lib/report.sh
source "$(dirname "$0")/../lib/report.sh"
