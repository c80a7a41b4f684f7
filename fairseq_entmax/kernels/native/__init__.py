"""Kernels in C for a CPU, compiled on first use."""

import torch

from fairseq_entmax.kernels.backends import ATTENTION, DECODING, LOSSES, ROWS, Kernel
from fairseq_entmax.kernels.native import library


def _missing(device: torch.device) -> str:
    try:
        library.library()
    except library.CannotBuild as error:
        return str(error)
    return ""


KERNEL = Kernel(
    name="native",
    device="cpu",
    dtypes=(torch.float32,),
    parts={part: f"{__name__}.{part}" for part in (ROWS, ATTENTION, LOSSES, DECODING)},
    has_structure=True,
    missing=_missing,
    about=lambda: f"the native kernel: {library.library()._name}",
    cost="on this CPU, which is many times slower than the native kernel",
)
