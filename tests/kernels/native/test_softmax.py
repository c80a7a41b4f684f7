"""Softmax is torch's own: it compiles nothing, and no line of the log says that a kernel runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler

# Prints the log, and how often the compiler has run before anything but softmax ran, and at the end
COUNTED = """
import logging, sys
from pathlib import Path
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
def compiles():
    log = Path(sys.argv[1])
    print(f"compiled {len(log.read_text().split()) if log.exists() else 0} times", flush=True)
"""
FUNCTIONS = """
import torch
from fairseq_entmax.mappings import Entmax, entmax, softmax
scores = torch.randn(2, 3, 4, 5, requires_grad=True)
for mapping in (softmax, lambda scores: entmax(scores, 1.0), Entmax(1.0), lambda scores: softmax(scores, 1)):
    mapping(scores).sum().backward()
    with torch.no_grad():
        mapping(scores)
compiles()
entmax(scores, 1.5)
compiles()
"""
MODELS = """
from tests.support import batch, build_model
sample = batch([5, 6], [7, 4])
def train_and_evaluate(**options):
    model = build_model(**options)
    for is_training in (True, False):
        logits, _ = model.train(is_training)(**sample["net_input"])
        logits.sum().backward()
train_and_evaluate(attn_mapping="softmax")
compiles()
train_and_evaluate()
compiles()
"""


def lines_of(code, compiler):
    """Lines that a new process prints of what compiles or runs."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COUNTED + code, compiler.path.with_suffix(".log")],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return [
        line for line in result.stdout.splitlines() if "compiled" in line or "alpha-entmax" in line
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("code", [FUNCTIONS, MODELS], ids=["functions", "models"])
def test_softmax_compiles_nothing_and_logs_no_kernel_in_a_new_process(code, fresh, compiler):
    fresh.delenv("FAIRSEQ_ENTMAX_KERNEL", raising=False)
    first, second, last = lines_of(code, compiler)
    assert first == "compiled 0 times"
    # What counts can count
    assert second.startswith("alpha-entmax runs on the native kernel: ")
    assert last == "compiled 1 times"
