#!/usr/bin/env bash
# Runs all that a GPU is needed for, in at most 20 minutes, and writes one JSON and one table:
# gpu.py says what, and what is to be installed (--help).
#
# Environment: PYTHON is the Python to take (default: python3).
set -euo pipefail

python=${PYTHON:-python3}
command -v "$python" >/dev/null || {
    printf '%s: error: PYTHON is %q, and there is no such command: set PYTHON to one\n' \
        "$(basename "$0")" "$python" >&2
    exit 2
}
exec "$python" "$(dirname "${BASH_SOURCE[0]}")/gpu.py" "$@"
