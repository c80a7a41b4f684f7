"""The kernels compile for GPUs, without one, and for all lengths at once."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from tests.kernels.triton.support import compile_for_h100

pytest.importorskip("triton")
from fairseq_entmax.kernels.triton import attention_tiles as tiles
from fairseq_entmax.kernels.triton import rows as triton_rows

pytestmark = [pytest.mark.slow, pytest.mark.compiles_only]


@pytest.mark.parametrize(
    ("major", "kib", "row_bytes", "fits"),
    [
        (9, 227, 1024, True),  # H100
        (8, 163, 1024, False),  # A100: float32 heads of 256 do not fit
        (8, 163, 512, True),
        (8, 99, 512, True),  # consumer GPUs
        (8, 99, 1024, False),
        (7, 64, 64, False),
    ],
)
def test_a_gpu_without_room_for_it_is_left_out(major, kib, row_bytes, fits, monkeypatch):
    properties = SimpleNamespace(major=major, shared_memory_per_block_optin=kib * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert tiles.has_room.__wrapped__(torch.device("cuda"), row_bytes) is fits


FLOATS = dict.fromkeys(("epsilon_ptr", "mask_ptr", "statistics_ptr", "middle_ptr"), "*fp32")
FLOATS |= {"grad_alpha_ptr": "*fp32", "padding_ptr": "*u8", "support_ptr": "*u8"}
FLOATS |= {"scale": "fp32", "kept": "fp32"}
BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
# Head dimension, kind of epsilon, lengths, and what is known when compiling: None or 1
VARIANTS = [
    (64, 0, (30, 30), {"padding_ptr": None, "mask_ptr": None}, False),
    (64, 0, (128, 2048), {"mask_ptr": None, "mask_row": 1}, False),
    (256, 1, (600, 600), {"mask_ptr": None, "queries": 1, "heads": 1}, True),
]
# Compute capability, dtype and dropout; to the compiler bfloat16 is as float16
TO_COMPILE = [(90, "fp32", False, VARIANTS[1]), (90, "bf16", True, VARIANTS[2])]
TO_COMPILE += [(80, "fp16", True, VARIANTS[0]), (80, "fp32", True, VARIANTS[2])]


def compile_cases():
    for architecture, dtype, drops, variant in TO_COMPILE:
        head_dim, kind, (queries, keys), known, causal = variant
        width = max(16, 1 << (head_dim - 1).bit_length())
        lengths = (queries, keys, head_dim, BYTES[dtype])
        for file, name, tile in (
            ("forward", "forward_kernel", tiles.forward_tile(*lengths)),
            ("backward", "backward_queries_kernel", tiles.backward_tile(*lengths)),
            ("backward", "backward_keys_kernel", tiles.backward_tile(*lengths)),
        ):
            # As for inference
            nothing = {"statistics_ptr": None, "support_ptr": None}
            nothing = nothing if (architecture, dtype, file) == (90, "fp32", "forward") else {}
            yield {
                "module": f"fairseq_entmax.kernels.triton.attention_{file}",
                "kernel": name,
                "pointer": f"*{dtype}",
                "types": FLOATS,
                "constants": known
                | {
                    "KIND": kind,
                    "DROPOUT": drops,
                    "FOR_ALPHA": kind == 0,
                    "CAUSAL": causal,
                    "WHOLE": tile.whole,
                }
                | {"PRECISION": "tf32x3", "HEAD_DIM": head_dim, "BLOCK_D": width}
                | {"BLOCK_M": tile.queries, "BLOCK_N": tile.keys},
                "options": {"num_warps": tile.warps, "num_stages": tile.stages},
                "aligned": True,
                "architecture": architecture,
            }


def test_the_kernels_compile_and_fit_the_shared_memory_that_is_asked_for():
    cases = list(compile_cases())
    results = compile_for_h100(cases)
    assert len(results) == len(cases)
    for case, (code, memory) in zip(cases, results, strict=True):
        assert code > 0
        kib = 227
        if case["architecture"] == 80:  # what has_room asks for
            row_bytes = case["constants"]["BLOCK_D"] * BYTES[case["pointer"][1:]]
            kib = next(kib for most, kib in tiles.KIB_OF_ROWS.items() if row_bytes <= most)
        assert memory <= kib * 1024, case


def test_the_kernels_compile_for_an_h100():
    cases = []
    for keys in (30, 128, 1024, 9000):
        tile = triton_rows.tile_of(keys)
        for kind in (0, 1, 2):
            shared = {
                "module": "fairseq_entmax.kernels.triton.rows_kernels",
                "pointer": "*fp32",
                "types": {"grad_alpha_ptr": "*fp32"},
                "options": {"num_warps": tile.warps},
                "aligned": keys in (128, 1024),
            }
            constants = {"KIND": kind, "WHOLE": tile.whole, "CHUNKS": tile.chunks}
            constants |= {"ROWS": tile.rows, "LANES": tile.lanes}
            # Triton compiles a 1 as a constant
            constants |= {"entries": 1} if keys != 128 else {}
            backward = constants | {"FOR_SCORES": True, "FOR_ALPHA": kind == 0}
            cases.append(shared | {"kernel": "forward_kernel", "constants": constants})
            cases.append(shared | {"kernel": "backward_kernel", "constants": backward})
    results = compile_for_h100(cases)
    assert len(results) == len(cases)
    assert all(code > 0 and memory <= 227 * 1024 for code, memory in results)


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
    ("rows_kernels", "forward_kernel"): {"rows", "inner"},
    ("rows_kernels", "backward_kernel"): {"rows", "inner"},
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
def test_a_kernel_is_one_for_all_lengths_and_knows_strides_and_heads(kernel, parameters):
    known = parameters[kernel]
    assert all(known[name] for name in KERNELS[kernel])
    there = [name for name in LOOKED_AT if name in known]
    assert there
    assert not any(known[name] for name in there)
