"""What Triton compiles no kernel anew for: numbers that change from batch to batch."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

# The interpreter has no parameters to look at
_LOOK = """
import json, sys
from importlib import import_module

for module, name in json.load(sys.stdin):
    kernel = getattr(import_module(f"fairseq_entmax.kernels.triton.{module}"), name)
    print(json.dumps({one.name: one.do_not_specialize for one in kernel.params}))
"""

ATTENTION = {"pairs", "queries", "keys"}
KERNELS = {
    ("attention_forward", "forward_kernel"): ATTENTION,
    ("attention_backward", "backward_queries_kernel"): ATTENTION,
    ("attention_backward", "backward_keys_kernel"): ATTENTION,
    ("decoding_kernels", "step_kernel"): {"keys"},
    ("rows_kernels", "forward_kernel"): {"rows", "inner"},
    ("rows_kernels", "backward_kernel"): {"rows", "inner"},
    ("losses_kernels", "sums_kernel"): {"rows"},
    ("losses_kernels", "gradient_kernel"): {"rows"},
    ("tv_kernels", "tv_forward_kernel"): {"rows", "inner", "strength_inner"},
    ("tv_kernels", "tv_backward_kernel"): {"rows", "inner", "strength_inner"},
    ("pnorm_kernels", "pnorm_forward_kernel"): {"rows", "inner", "gamma_inner"},
    ("pnorm_kernels", "pnorm_backward_kernel"): {"rows", "inner", "gamma_inner"},
}
# On which the width of what is read depends
LOOKED_AT = ("query_row", "key_row", "value_row", "heads", "entries")


@pytest.fixture(scope="module")
def parameters():
    """Of each kernel, its parameters, and whether Triton looks at none of their values."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LOOK],
        input=json.dumps(list(KERNELS)),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return dict(zip(KERNELS, map(json.loads, result.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("kernel", KERNELS, ids=".".join)
def test_a_kernel_is_one_for_all_lengths_and_sizes_of_a_batch(kernel, parameters):
    assert all(parameters[kernel][name] for name in KERNELS[kernel])


@pytest.mark.parametrize("kernel", KERNELS, ids=".".join)
def test_strides_and_heads_are_known_to_the_compiler(kernel, parameters):
    there = [name for name in LOOKED_AT if name in parameters[kernel]]
    assert there or kernel[0] == "losses_kernels"
    assert not any(parameters[kernel][name] for name in there)
