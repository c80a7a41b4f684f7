#!/usr/bin/env bash
# Kills jobs of every kind and compares their final results: soak.py says how (--help).
# Uses the commands on PATH.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/soak.py" "$@"
