"""The kernels compile for GPUs on a machine without one, and once for all lengths."""

from types import SimpleNamespace

import pytest
import torch

from tests.kernels.triton.support import DEVICE, compile_for_h100

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
def test_a_gpu_without_enough_shared_memory_is_left_out(major, kib, row_bytes, fits, monkeypatch):
    properties = SimpleNamespace(major=major, shared_memory_per_block_optin=kib * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert tiles.has_room.__wrapped__(torch.device("cuda"), row_bytes) is fits


FLOATS = dict.fromkeys(("epsilon_ptr", "mask_ptr", "statistics_ptr", "middle_ptr"), "*fp32")
FLOATS |= {"grad_alpha_ptr": "*fp32", "padding_ptr": "*u8", "support_ptr": "*u8"}
FLOATS |= {"scale": "fp32", "keep_scale": "fp32"}
BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
# Head dimension, kind of epsilon, lengths, what is known when compiling (None or 1), causal
VARIANTS = [
    (64, 0, (30, 30), {"padding_ptr": None, "mask_ptr": None}, False),
    (64, 0, (128, 2048), {"mask_ptr": None, "mask_row": 1}, False),
    (256, 1, (600, 600), {"mask_ptr": None, "queries": 1, "heads": 1}, True),
]
# Compute capability, dtype and dropout; the compiler treats bfloat16 like float16. A GPU runs the
# rest
TO_COMPILE = [(90, "fp32", False, VARIANTS[1]), (80, "fp16", True, VARIANTS[0])]
if DEVICE == "cuda":
    TO_COMPILE += [(90, "bf16", True, VARIANTS[2]), (80, "fp32", True, VARIANTS[2])]
# Parameters that Triton must not specialise on, so that one program serves all lengths, and those
# that it must, because the width of loads depends on them
UNLOOKED = {"attention": {"pairs", "queries", "keys"}, "rows": {"rows", "inner"}}
LOOKED_AT = {"query_row", "key_row", "value_row", "heads", "entries"}


def attention_cases():
    for architecture, dtype, drops, variant in TO_COMPILE:
        head_dim, kind, (queries, keys), known, causal = variant
        width = max(16, 1 << (head_dim - 1).bit_length())
        lengths = (queries, keys, head_dim, BYTES[dtype])
        for file, name, tile in (
            ("forward", "forward_kernel", tiles.forward_tile(*lengths)),
            ("backward", "backward_queries_kernel", tiles.backward_tile(*lengths)),
            ("backward", "backward_keys_kernel", tiles.backward_tile(*lengths)),
        ):
            constants = known | {"KIND": kind, "DROPOUT": drops, "FOR_ALPHA": kind == 0}
            constants |= {"CAUSAL": causal, "WHOLE": tile.whole, "PRECISION": "tf32x3"}
            constants |= {"HEAD_DIM": head_dim, "BLOCK_D": width}
            constants |= {"BLOCK_M": tile.queries, "BLOCK_N": tile.keys}
            if (architecture, dtype, file) == (90, "fp32", "forward"):  # as for inference
                constants |= {"statistics_ptr": None, "support_ptr": None}
            yield {
                "module": f"fairseq_entmax.kernels.triton.attention_{file}",
                "kernel": name,
                "pointer": f"*{dtype}",
                "types": FLOATS,
                "constants": constants,
                "options": {"num_warps": tile.warps, "num_stages": tile.stages},
                "aligned": True,
                "architecture": architecture,
            }


def rows_cases():
    for keys, kind in ((128, 1), (9000, 0)):
        tile = triton_rows.tile_of(keys)
        constants = {"KIND": kind, "WHOLE": tile.whole, "CHUNKS": tile.chunks}
        constants |= {"ROWS": tile.rows, "LANES": tile.lanes}
        constants |= {"FOR_SCORES": True, "FOR_ALPHA": kind == 0}
        for name in ("forward_kernel", "backward_kernel"):
            yield {
                "module": "fairseq_entmax.kernels.triton.rows_kernels",
                "kernel": name,
                "pointer": "*fp32",
                "types": {"grad_alpha_ptr": "*fp32"},
                "constants": constants,
                "options": {"num_warps": tile.warps},
                "aligned": keys == 128,
            }


def test_kernels_compile_for_all_lengths_within_the_requested_shared_memory():
    cases = [*attention_cases(), *rows_cases()]
    results = compile_for_h100(cases)
    assert len(results) == len(cases)
    for case, (code, memory, unlooked) in zip(cases, results, strict=True):
        assert code > 0
        kib = 227
        if case.get("architecture") == 80:  # the limit that has_room checks
            row_bytes = case["constants"]["BLOCK_D"] * BYTES[case["pointer"][1:]]
            kib = next(kib for most, kib in tiles.KIB_OF_ROWS.items() if row_bytes <= most)
        assert memory <= kib * 1024, case
        part = "attention" if "attention" in case["module"] else "rows"
        assert UNLOOKED[part] <= set(unlooked)
        assert not LOOKED_AT & set(unlooked)
