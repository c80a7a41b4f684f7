"""Attention maps of chosen sentences, in a compact form that keeps zeros exact.

Weights of maps are rounded, to float16 and in a page to a byte, so different ones may become equal.
If a head's mapping makes groups of equal weight, the groups are therefore stored as numbers."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from fairseq_entmax.analysis.measures.equal_weights import RUNS, equal_to_left, in_group

# How many groups of a row get a number: as many as fit into a byte
MOST = 255
_SMALLEST = numpy.finfo(numpy.float16).smallest_subnormal


def encode_weights(weights: Tensor) -> str:
    """Encode weights as float16; zero stays zero, and weights above zero stay above."""
    exact = weights.detach().float().cpu().numpy()
    half = exact.astype("<f2")
    half[(half == 0) & (exact > 0)] = _SMALLEST
    return _packed(half)


def decoded(entry: Dictionary[str, Any]) -> numpy.ndarray:
    """Decode weights ``(heads, queries, keys)`` float16 of a layer in the document's ``maps``."""
    return _unpacked(entry, "weights", "<f2")


def decode_weights(entry: Dictionary[str, Any]) -> Tensor:
    """The same as :func:`decoded`, for notebooks: ``(heads, queries, keys)`` float32."""
    return torch.from_numpy(decoded(entry).astype("<f4"))


def sentence_maps(
    attention: Dictionary[str, Dictionary[int, Tensor]],
    kinds: Dictionary[tuple[str, int], Sequence[str | None]],
) -> list[dict[str, Any]]:
    """Return maps of the weights ``(1, heads, queries, keys)`` of every head on one sentence."""
    entries = []
    for name, layers in attention.items():
        for layer, weights in sorted(layers.items()):
            entry = {
                "attention": name,
                "layer": layer,
                "shape": list(weights.shape[1:]),
                "weights": encode_weights(weights[0]),
            }
            if (name, layer) in kinds:
                groups = numbered_groups(weights[0], kinds[name, layer])
                entry["groups"] = encode_groups(groups)
            entries.append(entry)
    return entries


def numbered_groups(weights: Tensor, kinds: Sequence[str | None]) -> Tensor:
    """Return the group of each key, for weights ``(heads, queries, keys)``: uint8 of that shape.

    It is 0 for a key in no group, else the group's number in the row, from 1. Runs are numbered
    from the left, clusters from the heaviest. Groups beyond the first 255 are 0."""
    groups = torch.zeros(weights.shape, dtype=torch.uint8, device=weights.device)
    for head, kind in enumerate(kinds):
        if kind == RUNS:
            groups[head] = _numbered(weights[head])
        elif kind is not None:
            in_order, places = weights[head].sort(dim=-1, descending=True)
            groups[head].scatter_(-1, places, _numbered(in_order))
    return groups


def _numbered(rows: Tensor) -> Tensor:
    """Number the runs of two keys or more."""
    equal = equal_to_left(rows)
    is_member = in_group(equal)
    numbers = (is_member & ~equal).cumsum(dim=-1)
    return numbers.where(is_member & (numbers <= MOST), 0).to(torch.uint8)


def encode_groups(groups: Tensor) -> str:
    """Encode the numbers of groups as text: a byte each, compressed by zlib, in base64."""
    return _packed(groups.cpu().numpy())


def decoded_groups(entry: Dictionary[str, Any]) -> numpy.ndarray | None:
    """Decode :func:`numbered_groups` of a layer in the document's ``maps``; None if it has none."""
    return _unpacked(entry, "groups", "u1") if entry.get("groups") is not None else None


def _packed(numbers: numpy.ndarray) -> str:
    return base64.b64encode(zlib.compress(numbers.tobytes(), 9)).decode("ascii")


def _unpacked(entry: Dictionary[str, Any], name: str, dtype: str) -> numpy.ndarray:
    """Decode numbers, in the entry's shape."""
    try:
        data = zlib.decompress(base64.b64decode(entry[name], validate=True))
        return numpy.frombuffer(data, dtype=dtype).reshape(entry["shape"])
    except (ValueError, zlib.error) as error:
        raise ValueError(f"{name} of the shape {entry['shape']} cannot be read: {error}") from None
