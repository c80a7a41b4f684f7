"""The names of heads in a text."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from fairseq_entmax.attentions import ATTENTIONS

_NUMBERS = re.compile(r"([0-9]{1,6})\s*\.\s*([0-9]{1,6})")


class Head(NamedTuple):
    attention: str  # encoder-self, decoder-self or cross
    layer: int  # from 0, the bottom
    head: int  # from 0, in the order of the checkpoint's projections

    def __str__(self) -> str:
        return f"{self.attention}:{self.layer}.{self.head}"


def parse_heads(text: str) -> set[Head]:
    """Read heads such as ``"encoder-self:0.3,0.5;cross:2.1"``, as layer.head.

    Raises:
        ValueError: a part is not in this form, or a head is named twice.
    """
    heads: set[Head] = set()
    for part in text.split(";"):
        attention, _, numbers = (piece.strip() for piece in part.partition(":"))
        for number in numbers.split(","):
            match = _NUMBERS.fullmatch(number.strip())
            if attention not in ATTENTIONS or match is None:
                raise ValueError(
                    f"{part.strip()!r} does not name heads: write ATTENTION:LAYER.HEAD,LAYER.HEAD, "
                    f"counted from 0, where ATTENTION is one of {', '.join(ATTENTIONS)}, such as "
                    f"encoder-self:0.3,0.5;cross:2.1"
                )
            named = Head(attention, int(match[1]), int(match[2]))
            if named in heads:
                raise ValueError(f"the head {named} is named twice")
            heads.add(named)
    return heads


def check_heads(heads: Collection[Head], counts: Mapping[str, Sequence[int]], model: str) -> None:
    """Raise ValueError if a model lacks one of the heads; the message has its number in each layer."""
    for head in sorted(heads):
        layers = counts.get(head.attention, [])
        if head.layer >= len(layers) or head.head >= layers[head.layer]:
            raise ValueError(
                f"{model} has no head {head}: the layers of its {head.attention} attention have "
                f"{', '.join(map(str, layers)) or 'no'} heads; layers and heads are counted from 0"
            )
