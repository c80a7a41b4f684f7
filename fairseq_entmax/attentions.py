"""The three attentions of a Transformer, named the same in options, logs and files."""

from __future__ import annotations

import re
from typing import NamedTuple

ENCODER_SELF, DECODER_SELF, CROSS = "encoder-self", "decoder-self", "cross"
ATTENTIONS = (ENCODER_SELF, DECODER_SELF, CROSS)
# Those that make one vector of a text, and of each text of a pair, in models that classify
POOLING, HYPOTHESIS, PREMISE = "pooling", "hypothesis", "premise"
POOLINGS = (POOLING, HYPOTHESIS, PREMISE)

# Where each stands in a fairseq model: the side, and its name in a layer
PLACES = {
    ENCODER_SELF: ("encoder", "self_attn"),
    DECODER_SELF: ("decoder", "self_attn"),
    CROSS: ("decoder", "encoder_attn"),
}
# Between the side and its layers, and around a layer, there may be modules that hold them
_PATH = re.compile(
    r"(encoder|decoder)\.(?:\w+\.)*?layers\.(\d+)\.(?:\w+\.)*?(self_attn|encoder_attn)"
)
_NAMES = {place: attention for attention, place in PLACES.items()}


class Place(NamedTuple):
    """An attention of a model: one of :data:`ATTENTIONS`, and its layer, from 0, the bottom."""

    attention: str
    layer: int


def place_of(path: str) -> tuple[Place, str, str] | None:
    """Which attention a module or a parameter belongs to, by its path in the model.

    Args:
        path: such as ``encoder.layers.0.self_attn.q_proj.weight``.

    Returns:
        The attention, its own path, and the rest behind that, without the dot; None for what
        is in none.
    """
    match = _PATH.match(path)
    if match is None or path[match.end() : match.end() + 1] not in ("", "."):
        return None
    attention = _NAMES.get((match[1], match[3]))
    if attention is None:
        return None
    return Place(attention, int(match[2])), match[0], path[match.end() + 1 :]
