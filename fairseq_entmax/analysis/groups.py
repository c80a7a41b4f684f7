"""Which keys of a query have equal weight, for attention maps: decided on exact weights.

Weights of maps are rounded, to float16 and in a page to a byte, and different ones become equal.
So a head whose mapping makes groups has them by number, beside its weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from fairseq_entmax.analysis.measures.equal_weights import RUNS, equal_to_left, in_group
from fairseq_entmax.analysis.packing import packed, unpacked

# Groups of a row that have a number: what a byte tells apart
MOST = 255


def numbered_groups(weights: Tensor, kinds: Sequence[str | None]) -> Tensor:
    """The group that each key is in, of weights ``(heads, queries, keys)``: uint8 of that shape.

    0 for a key with a weight of its own, or of zero, else the number of its group in the row, from
    1: of runs from the left, of clusters from the heaviest. Those beyond the first 255 are 0.
    """
    groups = torch.zeros(weights.shape, dtype=torch.uint8, device=weights.device)
    for head, kind in enumerate(kinds):
        if kind == RUNS:
            groups[head] = _numbered(weights[head])
        elif kind is not None:
            in_order, places = weights[head].sort(dim=-1, descending=True)
            groups[head].scatter_(-1, places, _numbered(in_order))
    return groups


def _numbered(rows: Tensor) -> Tensor:
    """Runs of two or more, by number."""
    equal = equal_to_left(rows)
    is_member = in_group(equal)
    numbers = (is_member & ~equal).cumsum(dim=-1)
    return numbers.where(is_member & (numbers <= MOST), 0).to(torch.uint8)


def encode_groups(groups: Tensor) -> str:
    """Write the numbers of groups as text: a byte each, compressed by zlib, in base64."""
    return packed(groups.cpu().numpy())


def decoded_groups(entry: Dictionary[str, Any]) -> numpy.ndarray | None:
    """Read :func:`numbered_groups` of one layer from ``maps`` in ``analysis.json``, or None."""
    text = entry.get("groups")
    if text is None:
        return None
    try:
        data = unpacked(text, math.prod(entry["shape"]))
    except ValueError as error:
        raise ValueError(f"groups of the shape {entry['shape']} cannot be read: {error}") from None
    return numpy.frombuffer(data, dtype=numpy.uint8).reshape(entry["shape"])
