#!/usr/bin/env bash
# Kills jobs of every kind and compares what they make in the end: soak.py says how (--help).
# The commands are those on PATH.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/soak.py" "$@"
