"""The sentences shown by default: those of typical length."""

from __future__ import annotations

import math
from collections.abc import Mapping as Dictionary

from fairseq_entmax.analysis.data.samples import evenly_spread

# Quantiles of length: where typical sentences begin, where the quarters meet, where they end
BORDERS = (0.125, 0.25, 0.5, 0.75, 0.875)
# A map of more tokens is hard to read
LONGEST_SHOWN = 80


def borders(lengths: Dictionary[int, int]) -> list[int]:
    """Return the lengths at :data:`BORDERS`."""
    ordered = sorted(lengths.values())
    return [ordered[math.ceil(border * len(ordered)) - 1] for border in BORDERS]


def typical(lengths: Dictionary[int, int], number: int) -> list[int]:
    """Choose sentences by length, evenly from the first to the last border, and beyond them if there
    are few; those near the median come first. None is longer than :data:`LONGEST_SHOWN` if there
    are enough others."""
    ordered = sorted(lengths, key=lambda one: (lengths[one], one))
    readable = [one for one in ordered if lengths[one] <= LONGEST_SHOWN]
    if len(readable) < number:
        readable = ordered
    edge = min(len(readable) // 8, max(0, len(readable) - number) // 2)
    middle = readable[edge : len(readable) - edge]
    chosen = [middle[place] for place in evenly_spread(len(middle), number)]
    median = borders(lengths)[2]
    return sorted(chosen, key=lambda one: abs(lengths[one] - median))
