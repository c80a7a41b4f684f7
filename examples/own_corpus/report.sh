#!/usr/bin/env bash
# Holds models that were trained on two texts of your own side by side.
set -euo pipefail
# shellcheck source=examples/lib/report.sh
source "$(dirname "$0")/../lib/report.sh"
