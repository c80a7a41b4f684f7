"""The three attentions of a Transformer, named the same in options, logs and files."""

from __future__ import annotations

import re
from typing import NamedTuple

ENCODER_SELF, DECODER_SELF, CROSS = "encoder-self", "decoder-self", "cross"
ATTENTIONS = (ENCODER_SELF, DECODER_SELF, CROSS)

# The side of a model that each belongs to, as fairseq's options name it
SIDES = {ENCODER_SELF: "encoder", DECODER_SELF: "decoder", CROSS: "decoder"}
# In fairseq's names of weights; around the layers, and around each, there may be modules that hold them
_PATH = re.compile(r"((?:\w+\.)*?)\w*layers\.(\d+)\.(?:\w+\.)*?(self_attn|encoder_attn)(?=\.|$)")


class Place(NamedTuple):
    """An attention of a model: one of :data:`ATTENTIONS`, and its layer, from 0, the bottom."""

    attention: str
    layer: int


def place_of(path: str) -> tuple[Place, str, str] | None:
    """Which attention a weight in a checkpoint belongs to, by its path in the model.

    Args:
        path: such as ``encoder.layers.0.self_attn.q_proj.weight``.

    Returns:
        The attention, its own path, and the rest behind that, without the dot; None for what
        is in none.
    """
    match = _PATH.match(path)
    if match is None:
        return None
    attention = DECODER_SELF if "decoder" in match[1].split(".") else ENCODER_SELF
    if match[3] == "encoder_attn":
        attention = CROSS
    return Place(attention, int(match[2])), match[0], path[match.end() + 1 :]
