"""Attention maps of chosen sentences, in a compact form that keeps zeros exact."""

from __future__ import annotations

import math
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from fairseq_entmax.analysis.groups import encode_groups, numbered_groups
from fairseq_entmax.analysis.packing import packed, unpacked

# The length, in tokens, of a sentence that is short enough to be read on one line of a figure
LONGEST = 40

# The most bytes that the weights of all maps of an analysis may have in memory. Compressed, they
# can come from a thousandth of it; and no browser shows a page of more
LARGEST = 1 << 30
_SMALLEST = numpy.finfo(numpy.float16).smallest_subnormal


def encode_weights(weights: Tensor) -> str:
    """Write weights as text: float16, little endian, compressed by zlib, in base64.

    Zero stays zero, and what is above zero stays above: it becomes at least the smallest
    float16 above zero, 6e-8.
    """
    exact = weights.detach().float().cpu().numpy()
    half = exact.astype("<f2")
    half[(half == 0) & (exact > 0)] = _SMALLEST
    return packed(half)


def decoded(entry: Dictionary[str, Any]) -> numpy.ndarray:
    """Read the weights of one layer of one attention from ``maps`` in ``analysis.json``.

    Returns:
        ``(heads, queries, keys)`` float16.
    """
    size = map_bytes(entry["shape"])
    try:
        if size > LARGEST:
            raise ValueError(f"they are {size:,} bytes, more than {LARGEST:,}")
        data = unpacked(entry["weights"], size)
    except ValueError as error:
        raise ValueError(f"weights of the shape {entry['shape']} cannot be read: {error}") from None
    return numpy.frombuffer(data, dtype="<f2").reshape(entry["shape"])


def map_bytes(shape: Sequence[int]) -> int:
    """How large the weights of a shape, ``(heads, queries, keys)``, are in memory, in bytes."""
    return 2 * math.prod(shape)


def decode_weights(entry: Dictionary[str, Any]) -> Tensor:
    """As :func:`decoded`, for notebooks: ``(heads, queries, keys)`` float32."""
    return torch.from_numpy(decoded(entry).astype("<f4"))


def sentence_maps(
    attention: Dictionary[str, Dictionary[int, Tensor]],
    kinds: Dictionary[tuple[str, int], Sequence[str | None]] | None = None,
) -> list[dict[str, Any]]:
    """The weights ``(1, heads, queries, keys)`` of every head on one sentence, as maps."""
    entries = []
    for name, layers in attention.items():
        for layer, weights in sorted(layers.items()):
            entry = {
                "attention": name,
                "layer": layer,
                "shape": list(weights.shape[1:]),
                "weights": encode_weights(weights[0]),
            }
            if kinds and (name, layer) in kinds:
                groups = numbered_groups(weights[0], kinds[name, layer])
                entry["groups"] = encode_groups(groups)
            entries.append(entry)
    return entries
