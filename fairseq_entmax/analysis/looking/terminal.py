"""A look as text of 80 columns."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_entmax.analysis.looking.sentence import TOP, Links, Look
from fairseq_entmax.attentions import DECODER_SELF

WIDTH = 80
_LONGEST_TOKEN = 18
_NARROWEST_LINK = 12
_POOLED = 10


def shown(
    look: Look,
    attention: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    top: int = TOP,
) -> str:
    """What is to be read of a sentence: what was said of it, and the strongest links.

    Args:
        look: of one sentence.
        attention, layer, head, top: as for :meth:`Look.links`. Of a classifier, whose attention
            is not asked for, there is what pools instead.
    """
    parts = [_header(look)]
    if look.classified is not None and attention is None:
        parts += _pooled(look, head, top)
    else:
        parts.append(_table(look, attention, layer, head, top))
    return "\n\n".join(parts)


def _header(look: Look) -> str:
    lines = [_line("text", look.text)]
    if look.translation is not None:
        name = "translation" if look.is_generated else "translation (given)"
        lines.append(_line(name, look.translation))
    if look.classified is not None:
        lines.append(_line("says", f"{look.classified.label} ({look.classified.probability:.2f})"))
    return "\n".join([*lines, *(_line("note", note) for note in look.notes)])


def _line(name: str, text: str) -> str:
    return textwrap.fill(f"{name}: {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _table(look: Look, attention: str | None, layer: int | None, head: int | None, top: int) -> str:
    found = look.links(attention, layer, head, top)
    name = attention or look.first_attention
    title = f"{textwrap.fill(look.said_of(attention, layer, head), WIDTH)}:"
    keys = look.axes(name)[1]
    weights = look.chosen(name, layer, head)
    is_mean = len(weights) > 1
    if is_mean:
        title += f"\n{textwrap.fill(_zeros_of_heads(name, weights), WIDTH)}"
    # A mean is 0 only where every head is: its zeros are told of the heads instead
    zeros = ["" if is_mean and not one.zeros else _zeros(one) for one in found]
    first = min(_LONGEST_TOKEN, max(_width(one.token) for one in found))
    last = max(map(len, zeros))
    room = WIDTH - first - last - 4
    in_row = max(1, min(top, room // _NARROWEST_LINK))
    width = room // in_row
    lines = []
    for one, left in zip(found, zeros, strict=True):
        tokens = _told_apart(one, keys)
        cells = [
            _cell(token, weight, width) for token, (_, weight) in zip(tokens, one.keys, strict=True)
        ]
        rows = [cells[at : at + in_row] for at in range(0, len(cells), in_row)] or [[]]
        for number, row in enumerate(rows):
            begin = _fitted(one.token, first) if number == 0 else " " * first
            end = left.rjust(last) if number == 0 else ""
            middle = "".join(row) + " " * (room - width * len(row))
            lines.append(f"{begin}  {middle}  {end}".rstrip())
    return "\n".join([title, *lines])


def _zeros_of_heads(attention: str, weights: Tensor) -> str:
    """Of how many heads weights are exactly 0, which a mean over heads hides, and how to see one.

    Args:
        weights: ``(heads, queries, keys)``.
    """
    seen = torch.ones_like(weights[0], dtype=torch.bool)
    if attention == DECODER_SELF:
        seen = seen.tril()
    own = weights[:, seen]
    leaving = int(own.eq(0).any(dim=1).sum())
    # Of each query the share of its keys, as the measure is
    density = ((weights > 0) & seen).sum(-1) / seen.sum(-1)
    return (
        f"of {len(weights)} heads {leaving or 'none'} leave{'s' * (leaving == 1)} out keys, with "
        f"weights of exactly 0; mean density {float(density.mean()):.2f}; --layer and --head show one"
    )


def _told_apart(one: Links, tokens: Sequence[str]) -> list[str]:
    """The keys of a line, with their places, from 0, where the sentence has a token twice."""
    return [
        f"{token}#{place}" if tokens.count(token) > 1 else token
        for (token, _), place in zip(one.keys, one.places, strict=True)
    ]


def _zeros(one: Links) -> str:
    return f"{one.zeros} of {one.visible} exactly 0" if one.zeros else "no zeros"


def _pooled(look: Look, head: int | None, top: int) -> list[str]:
    said = look.classified
    assert said is not None
    tables = []
    for name, weights in said.pooling.items():
        if head is not None and not 0 <= head < len(weights):
            raise ValueError(f"--head got {head}: {name} has the heads 0 to {len(weights) - 1}")
        own = weights.mean(dim=0) if head is None else weights[head]
        order = own.sort(descending=True, stable=True)
        most = max(top, _POOLED)
        best = [
            (look.tokens[place], weight)
            for place, weight in zip(
                order.indices.tolist()[:most], order.values.tolist()[:most], strict=True
            )
            if weight > 0
        ]
        heads = f"head {head}" if head is not None else f"mean of {len(weights)} heads"
        heads = "its head" if len(weights) == 1 else heads
        seen = said.visible[name]
        zeros = int(own[seen].eq(0).sum())
        unit = "words" if look.is_words else "tokens"
        left = f"{zeros} of {int(seen.sum())} {unit} exactly 0" if zeros else "no zeros"
        rows = [f"  {weight_text(weight)} {token}" for token, weight in best]
        tables.append("\n".join([f"{name}, {heads}, {left}:", *rows]))
    return tables


def weight_text(weight: float) -> str:
    """A weight in four columns; 0 is exactly 0, and what is above never looks like it."""
    if weight == 0:
        return "   0"
    return f"{weight:.2f}" if weight >= 0.005 else "<.01"


def _cell(token: str, weight: float, width: int) -> str:
    return f"{weight_text(weight)} {_fitted(token, width - 6)} "


def _fitted(text: str, width: int) -> str:
    """A text in so many columns, cut where it is longer."""
    if _width(text) > width:
        kept: list[str] = []
        for letter in text:
            if _width([*kept, letter]) > width - 1:
                break
            kept.append(letter)
        text = "".join(kept) + "…"
    return text + " " * (width - _width(text))


def _width(text: Sequence[str]) -> int:
    """How many columns a text has in a terminal."""
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )
