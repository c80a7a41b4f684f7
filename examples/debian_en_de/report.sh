#!/usr/bin/env bash
# Holds models that translate the descriptions of Debian's packages side by side.
set -euo pipefail
# shellcheck source=examples/lib/report.sh
source "$(dirname "$0")/../lib/report.sh"
