"""Naming heads in a text."""

from __future__ import annotations

from typing import NamedTuple

from fairseq_entmax.attentions import ATTENTIONS


class Head(NamedTuple):
    """One head of a model.

    Attributes:
        attention: ``encoder-self``, ``decoder-self`` or ``cross``.
        layer: from 0, the bottom.
        head: from 0, in the order of the checkpoint's projections.
    """

    attention: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.attention}:{self.layer}.{self.head}"


def parse_heads(text: str) -> set[Head]:
    """Read heads such as ``"encoder-self:0.3,0.5;cross:2.1"``, as layer.head.

    Raises:
        ValueError: a part is not in this form, or a head is named twice.
    """
    heads: set[Head] = set()
    for part in text.split(";"):
        attention, colon, numbers = (piece.strip() for piece in part.partition(":"))
        if not colon or attention not in ATTENTIONS:
            raise ValueError(
                f"{part.strip()!r} names no heads: write ATTENTION:LAYER.HEAD,LAYER.HEAD with an "
                f"attention of {', '.join(ATTENTIONS)}, such as encoder-self:0.3,0.5;cross:2.1"
            )
        for number in numbers.split(","):
            layer, dot, head = (piece.strip() for piece in number.partition("."))
            if not (dot and _is_number(layer) and _is_number(head)):
                raise ValueError(
                    f"{number.strip()!r} in {part.strip()!r} is no head: write LAYER.HEAD, both "
                    f"counted from 0, such as {attention}:0.3,0.5, and a semicolon before another "
                    f"attention"
                )
            named = Head(attention, int(layer), int(head))
            if named in heads:
                raise ValueError(f"the head {named} is named twice")
            heads.add(named)
    return heads


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 7
