"""Queries, keys and values for timing attention, drawn at random."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import torch
from torch import Tensor

INDEPENDENT, SMOOTH = QUERIES = ("independent", "smooth")
# Between a smooth query and the one before it
CORRELATION = 0.95


class Case(NamedTuple):
    """The inputs of one attention.

    Attributes:
        about: its description in tables: ``shape``, ``queries``, ``spread`` and ``alpha``.
        query, key, value: ``(batch, heads, positions, head_dim)``, with gradients.
        grad: gradient of the output.
        epsilon: alpha - 1 of each head, ``(heads,)``, with a gradient.
        scale: factor of the scores.
    """

    about: dict[str, Any]
    query: Tensor
    key: Tensor
    value: Tensor
    grad: Tensor
    epsilon: Tensor
    scale: float

    def alpha(self) -> Tensor:
        """The alpha of each head, in a shape that broadcasts against scores."""
        return 1.0 + self.epsilon.view(-1, 1, 1)


def shape_of(text: str) -> tuple[int, int, int, int]:
    """Sentences, heads, tokens and the size of a head, from a text such as ``1x8x1024x64``."""
    try:
        batch, heads, length, size = map(int, text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}: give SENTENCESxHEADSxTOKENSxSIZE, such as 1x8x1024x64"
        ) from None
    return batch, heads, length, size


def drawn(shape: tuple[int, int, int, int], spread: float, queries: str, alpha: float) -> Case:
    """Draw keys and values from N(0, 1), and queries from N(0, 1) times the spread.

    The spread is then the standard deviation of the scores. Each smooth query has a correlation of
    :data:`CORRELATION` to the one before, as neighbours in a text resemble each other.
    """
    _, heads, length, size = shape
    generator = torch.Generator().manual_seed(0)
    query, key, value, grad = (torch.randn(shape, generator=generator) for _ in range(4))
    if queries == SMOOTH:
        own = (1 - CORRELATION**2) ** 0.5
        for place in range(1, length):
            query[:, :, place] = CORRELATION * query[:, :, place - 1] + own * query[:, :, place]
    text = "x".join(map(str, shape))
    about = {"shape": text, "queries": queries, "spread": spread, "alpha": alpha}
    leaves = (leaf.requires_grad_() for leaf in (spread * query, key, value))
    epsilon = torch.full((heads,), alpha - 1.0).requires_grad_()
    return Case(about, *leaves, grad, epsilon, size**-0.5)
