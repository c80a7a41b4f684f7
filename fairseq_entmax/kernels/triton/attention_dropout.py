"""Dropout of weights in the kernels, with the words of :mod:`fairseq_entmax.kernels.dropout`.

A kernel takes 32-bit words as int32, so that no seed makes Triton recompile it: Triton gives larger
numbers, even unsigned ones of 32 bits, other types.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fairseq_entmax.kernels import dropout

_WORD = 2**32 - 1
_ROUNDS = tl.constexpr(dropout.ROUNDS)
# What a kernel takes after its other numbers; one compiled program serves all their values
NAMES = ["seed_low", "seed_high", "least"]


def numbers_of(share: float, seed: Tensor | None) -> tuple[int, int, int, float]:
    """What a kernel takes for a dropout of ``share``: the seed's two words, the smallest word that
    keeps a weight, and the factor of kept weights."""
    if not share or seed is None:
        return 0, 0, 0, 1.0
    number = int(seed.item())
    words = (number & _WORD, (number >> 32) & _WORD, dropout.least_word(share))
    low, high, least = (word - 2**32 if word >= 2**31 else word for word in words)
    return low, high, least, 1.0 / (1.0 - share)


@triton.jit
def drawn(number, seed_low, seed_high, least, keep_scale):
    """The factors of the weights with these numbers, int64: 0 or ``keep_scale``."""
    low = number.to(tl.uint32)
    high = (number >> 32).to(tl.uint32)
    none = tl.zeros_like(low)
    key_low = seed_low.to(tl.uint32, bitcast=True)
    key_high = seed_high.to(tl.uint32, bitcast=True)
    word, _, _, _ = tl.philox_impl(low, high, none, none, key_low, key_high, _ROUNDS)
    return tl.where(word >= least.to(tl.uint32, bitcast=True), keep_scale, 0.0)
