"""The kernels in a process that was forked after they ran on several threads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.native.support import needs_compiler

pytestmark = [needs_compiler, pytest.mark.slow]
SECONDS = 60  # more than any way takes: a child that hangs does so for ever


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize(
    ("way", "children", "whole_ones", "threads"),
    [
        ("fork", 1, 1, 1),
        ("child of a child", 2, 2, 1),
        ("multiprocessing, fork", 4, 2, 1),
        ("multiprocessing, spawn", 4, 4, 2),
        ("data loader", 8, 4, 1),
    ],
)
def test_a_child_computes_bit_for_bit_what_its_parent_did(way, children, whole_ones, threads):
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kernels.native.forks", way],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output = process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # its children too
        process.communicate()
        pytest.fail(f"{way}: a child hangs")
    assert process.returncode == 0
    parent, *lines = output.splitlines()
    whole, used, kernel_alone, _ = parent.split()
    assert used == "2"
    assert [line.split()[1] for line in lines] == [str(threads)] * children
    results = [line.split()[0] for line in lines]
    assert results == [whole] * whole_ones + [kernel_alone] * (children - whole_ones)
