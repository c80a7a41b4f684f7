"""Dropout of weights that depends only on a seed and their positions: the same in every kernel.

A weight has the number ``((sentence * heads + head) * queries + query) * keys + key``. From this,
with the seed as its key, Philox 4x32 with ten rounds makes four words, of which the first decides
whether the weight is kept. So the backward pass drops what the forward pass dropped, whatever the
order in which it visits the weights, and on any number of threads.

Source:
    Salmon, Moraes, Dror, Shaw 2011, *Parallel random numbers: as easy as 1, 2, 3*.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 10
_FACTORS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85
_WORD = 0xFFFFFFFF


def new_seed() -> Tensor:
    """A seed from torch's CPU generator: ``(1,)``, int64, not negative."""
    return torch.randint(2**63 - 1, (1,), dtype=torch.int64, device="cpu")


def least_word(dropout: float) -> int:
    """The smallest 32-bit word whose weight is kept."""
    return min(round(dropout * 2**32), _WORD)


def factors(sizes: tuple[int, ...], dropout: float, seed: Tensor, device: torch.device) -> Tensor:
    """The factors of the weights, 0 or 1 / (1 - dropout), in float32, with these sizes."""
    numbers = torch.arange(sizes[0] * sizes[1] * sizes[2] * sizes[3], device=device)
    words = first_words(numbers, seed.to(device)).view(sizes)
    return (words >= least_word(dropout)).to(torch.float32) / (1 - dropout)


def first_words(numbers: Tensor, seed: Tensor) -> Tensor:
    """Philox's first word, from 0 to ``2^32 - 1``, for each of the int64 numbers."""
    counters = [numbers & _WORD, (numbers >> 32) & _WORD]
    counters += [torch.zeros_like(numbers), torch.zeros_like(numbers)]
    keys = [seed & _WORD, (seed >> 32) & _WORD]
    for _ in range(ROUNDS):
        # Products of two words fill 64 bits: as int64 they wrap to the right bits
        first, second = (factor * one for factor, one in zip(_FACTORS, counters[::2], strict=True))
        counters = [
            ((second >> 32) & _WORD) ^ counters[1] ^ keys[0],
            second & _WORD,
            ((first >> 32) & _WORD) ^ counters[3] ^ keys[1],
            first & _WORD,
        ]
        keys = [(key + step) & _WORD for key, step in zip(keys, _STEPS, strict=True)]
    return counters[0]
