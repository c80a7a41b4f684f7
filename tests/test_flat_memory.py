"""Memory does not grow with the number of calls, of updates, of epochs.

Each in a process of its own, whose memory the system tells; and with a leak that is planted, which has to
be seen. What the C code does not free is found to the byte by tests/kernels/native/test_sanitizers.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.native.support import needs_compiler

pytestmark = [
    pytest.mark.slow,
    needs_compiler,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell"),
]

# Bytes, 60 for each of the calls
MOST = {"calls": 1_200_000, "training": 400_000}


def test_memory_is_flat_over_thousands_of_calls_and_over_the_epochs_of_a_training():
    result = subprocess.run(
        [sys.executable, "-m", "tests.flat_memory"],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    for kind, (flat, leaking) in json.loads(result.stdout.splitlines()[-1]).items():
        assert flat < MOST[kind] < leaking, (kind, flat, leaking)
