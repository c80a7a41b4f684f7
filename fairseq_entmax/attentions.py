"""The three attentions of a Transformer, named the same in options, logs and files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

ENCODER_SELF, DECODER_SELF, CROSS = "encoder-self", "decoder-self", "cross"
ATTENTIONS = (ENCODER_SELF, DECODER_SELF, CROSS)

# The side of a model that each belongs to, as fairseq's options name it
SIDES = {ENCODER_SELF: "encoder", DECODER_SELF: "decoder", CROSS: "decoder"}
# In fairseq's names of weights: an attention, and the encoder or decoder that it is part of
_PATH = re.compile(r"((?:(.*\b(?:encoder|decoder))\.)?(?:.*\.)?(self_attn|encoder_attn))\.(.+)")


class Place(NamedTuple):
    """An attention of a model: one of :data:`ATTENTIONS`, and its layer, from 0, the bottom."""

    attention: str
    layer: int


class Weight(NamedTuple):
    """A weight of an attention: its place, the path of the attention, and its name in there."""

    place: Place
    path: str
    name: str


def weights_of_attentions(paths: Iterable[str]) -> dict[str, Weight]:
    """The attention weights of a state dict, by path. Layers go by the numbers in their names,
    or, without numbers, by the order of the state dict."""
    places: dict[str, Place] = {}
    numbers: Counter[tuple[str, str | None]] = Counter()
    matches = [match for match in map(_PATH.fullmatch, paths) if match]
    for path, stack, kind, _ in sorted((match.groups() for match in matches), key=_numbers):
        if path not in places:
            attention = DECODER_SELF if (stack or "").endswith("decoder") else ENCODER_SELF
            attention = CROSS if kind == "encoder_attn" else attention
            places[path] = Place(attention, numbers[attention, stack])
            numbers[attention, stack] += 1
    return {one[0]: Weight(places[one[1]], one[1], one[4]) for one in matches}


def _numbers(groups: Sequence[str]) -> list[int]:
    return [int(part) if part.isdigit() else -1 for part in groups[0].split(".")]
