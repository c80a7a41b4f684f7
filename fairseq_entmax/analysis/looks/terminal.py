"""The result of ``look`` as lines of text."""

from __future__ import annotations

import textwrap

import torch
from torch import Tensor

from fairseq_entmax.analysis.looks.sentence import Links, Sentence
from fairseq_entmax.attentions import DECODER_SELF
from fairseq_entmax.text_table import text_table

WIDTH = 80


def shown(
    look: Sentence,
    attention: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    top: int = 3,
) -> str:
    """Format a sentence: its text, its translation and the strongest links."""
    return f"{_header(look)}\n\n{_table(look, attention or look.first_attention, layer, head, top)}"


def _header(look: Sentence) -> str:
    lines = {"text": look.text}
    if look.translation is not None:
        lines["translation" + " (given)" * (not look.is_generated)] = look.translation
    rows = [*lines.items(), *(("note", note) for note in look.notes)]
    return "\n".join(_filled(f"{name}: {text}", "  ") for name, text in rows)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _table(look: Sentence, attention: str, layer: int | None, head: int | None, top: int) -> str:
    found = look.links(attention, layer, head, top)
    keys = look.axes(attention)[1]
    weights = look.chosen(attention, layer, head)
    title = [_filled(f"{look.heads_in_words(attention, layer, head)}:")]
    if len(weights) > 1:
        title.append(_filled(_zeros_of_heads(attention, weights)))
    most = max(len(one.keys) for one in found)
    rows = []
    for one in found:
        cells = [
            # With its position, from 0, if the sentence has the token more than once
            f"{weight_text(weight)} {token}" + f"#{place}" * (keys.count(token) > 1)
            for place, (token, weight) in zip(one.places, one.keys, strict=True)
        ]
        # A mean is 0 only if every head is, so the line above reports zeros by head
        zeros = "" if len(weights) > 1 and not one.zeros else _zeros(one)
        rows.append([one.token, *cells, *[""] * (most - len(cells)), zeros])
    return "\n".join([*title, text_table(rows, left_aligned=range(most + 1))])


def _zeros_of_heads(attention: str, weights: Tensor) -> str:
    """Say how many heads have exact zeros, which the mean over heads hides, and how to see one."""
    seen = torch.ones_like(weights[0], dtype=torch.bool)
    if attention == DECODER_SELF:
        seen = seen.tril()
    leaving = int(weights[:, seen].eq(0).any(dim=1).sum())
    # The share of the keys, per query, as in the measure of that name
    density = ((weights > 0) & seen).sum(-1) / seen.sum(-1)
    return (
        f"{leaving or 'none'} of {len(weights)} heads give{'s' * (leaving == 1)} some keys a weight "
        f"of exactly 0; mean density {float(density.mean()):.2f}; --layer and --head show one head"
    )


def _zeros(one: Links) -> str:
    return f"{one.zeros} of {one.visible} exactly 0" if one.zeros else "no zeros"


def weight_text(weight: float) -> str:
    """Format a weight in four columns; only an exact 0 reads 0."""
    if weight == 0:
        return "   0"
    return f"{weight:.2f}" if weight >= 0.005 else "<.01"
