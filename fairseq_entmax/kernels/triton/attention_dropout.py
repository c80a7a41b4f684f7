"""Dropout of weights in the kernels: the words of :mod:`fairseq_entmax.kernels.dropout`.

Words of 32 bits come to a kernel as int32, so that no seed makes Triton compile anew: a number of
32 bits without a sign has a type of its own there, and one above that another.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fairseq_entmax.kernels import dropout

_WORD = 2**32 - 1
_ROUNDS = tl.constexpr(dropout.ROUNDS)
# What a kernel takes after its other numbers; whatever they are, one program is for all
NAMES = ["seed_low", "seed_high", "least"]


def numbers_of(share: float, seed: Tensor | None) -> tuple[int, int, int, float]:
    """What a kernel takes for a dropout of ``share``: both words of the seed, the least that stays,
    and what is left of a weight's 1."""
    if not share or seed is None:
        return 0, 0, 0, 1.0
    number = int(seed.item())
    words = (number & _WORD, (number >> 32) & _WORD, dropout.least_word(share))
    low, high, least = (word - 2**32 if word >= 2**31 else word for word in words)
    return low, high, least, 1.0 / (1.0 - share)


@triton.jit
def drawn(number, seed_low, seed_high, least, keep_scale):
    """What weights with such numbers, int64, are multiplied by: 0 or ``keep_scale``."""
    low = number.to(tl.uint32)
    high = (number >> 32).to(tl.uint32)
    none = tl.zeros_like(low)
    key_low = seed_low.to(tl.uint32, bitcast=True)
    key_high = seed_high.to(tl.uint32, bitcast=True)
    word, _, _, _ = tl.philox_impl(low, high, none, none, key_low, key_high, _ROUNDS)
    return tl.where(word >= least.to(tl.uint32, bitcast=True), keep_scale, 0.0)
