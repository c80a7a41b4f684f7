"""Which weights dropout leaves, told by a seed and by where they stand: the same in every kernel.

A weight has the number ``((sentence * heads + head) * queries + query) * keys + key``. The first of
four words that Philox 4x32 of ten rounds makes of it, with the seed as its key, says whether the
weight stays. So a backward pass finds again what the forward pass dropped, in whatever order it
comes to the weights and on however many threads.

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
    """A seed of torch's generator of a CPU: ``(1,)``, int64, not negative."""
    return torch.randint(2**63 - 1, (1,), dtype=torch.int64)


def least_word(dropout: float) -> int:
    """The least word, of 32 bits, whose weight stays."""
    return min(round(dropout * 2**32), _WORD)


def factors(sizes: tuple[int, ...], dropout: float, seed: Tensor, device: torch.device) -> Tensor:
    """What weights are multiplied by, 0 or 1 / (1 - dropout): float32 of these sizes."""
    numbers = torch.arange(sizes[0] * sizes[1] * sizes[2] * sizes[3], device=device)
    words = first_words(numbers, seed.to(device)).view(sizes)
    return (words >= least_word(dropout)).to(torch.float32) / (1 - dropout)


def first_words(numbers: Tensor, seed: Tensor) -> Tensor:
    """The first words of Philox, from 0 to ``2^32 - 1``, of numbers in int64, of their shape."""
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
