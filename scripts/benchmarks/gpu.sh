#!/usr/bin/env bash
# Runs everything that needs a GPU, in at most 20 minutes: gpu.py says what it writes, and what has
# to be installed (--help).
#
# Environment: PYTHON is the Python to use (default: python3).
set -euo pipefail

python=${PYTHON:-python3}
command -v "$python" >/dev/null || {
    printf '%s: error: PYTHON is %q, which is not a command: set PYTHON to one\n' \
        "$(basename "$0")" "$python" >&2
    exit 2
}
exec "$python" "$(dirname "${BASH_SOURCE[0]}")/gpu.py" "$@"
