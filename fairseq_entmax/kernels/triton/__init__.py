"""Kernels in Triton for a GPU. Importing a module of this package imports Triton."""

import functools
import importlib

import torch

from fairseq_entmax.kernels.backends import ATTENTION, ROWS, Kernel
from fairseq_entmax.kernels.structure import PLAIN


@functools.cache
def _missing(device: torch.device) -> str:
    try:
        importlib.import_module("triton")
    except ImportError as error:
        return f"triton cannot be imported ({error}): pip install triton"
    rows = importlib.import_module(f"{__name__}.rows")
    if not (device.type == "cuda" or rows.INTERPRETED):
        return (
            f"Triton is for CUDA devices, not for {device}: set TRITON_INTERPRET=1 to run its "
            f"kernels in Triton's interpreter"
        )
    probe = torch.zeros(1, 1, device=device)
    try:
        rows.probabilities(probe, PLAIN, 0.5)
    except Exception as error:
        # Triton can fail in many ways, such as no C compiler for its launcher or a GPU too old for
        # it. None of them may stop a training that can do without it
        what = (str(error).strip() or "no message").splitlines()[0]
        return f"its kernels cannot run here ({type(error).__name__}: {what})"
    return ""


def _about() -> str:
    rows = importlib.import_module(f"{__name__}.rows")
    return f"Triton kernels{' in its interpreter' if rows.INTERPRETED else ''}"


KERNEL = Kernel(
    name="triton",
    device="cuda",
    dtypes=(torch.float32, torch.float16, torch.bfloat16),
    parts={part: f"{__name__}.{part}" for part in (ROWS, ATTENTION)},
    has_structure=False,
    missing=_missing,
    about=_about,
    cost="on this GPU, not in Triton",
)
