"""Queries, keys and values for timing attention: drawn at random, or from a trained model."""

from __future__ import annotations

import argparse
from pathlib import Path
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
        padding: ``(batch, keys)``, true at padding; None for none.
        causal: whether a query sees no key after its own position.
    """

    about: dict[str, Any]
    query: Tensor
    key: Tensor
    value: Tensor
    grad: Tensor
    epsilon: Tensor
    scale: float
    padding: Tensor | None = None
    causal: bool = False

    def allowed(self) -> Tensor | None:
        """``(batch or 1, 1, queries or 1, keys)``, true if a query may look there; None: all."""
        mask = None if self.padding is None else ~self.padding[:, None, None]
        if self.causal:
            past = torch.ones(self.query.size(2), self.key.size(2), dtype=torch.bool).tril()
            mask = past[None, None] if mask is None else mask & past
        return mask

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """The scores, -inf where a query may not look."""
        found, allowed = (self.scale * query) @ key.mT, self.allowed()
        return found if allowed is None else found.masked_fill(~allowed, -torch.inf)

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


def dumped(path: str | Path) -> list[Case]:
    """The attentions that dump_attention.py wrote."""
    generator = torch.Generator().manual_seed(0)
    layers = torch.load(path, map_location="cpu", weights_only=True)
    return [_of_layer(layer, generator) for layer in layers]


def _of_layer(layer: dict[str, Any], generator: torch.Generator) -> Case:
    query, key, value = (layer[name].requires_grad_() for name in ("query", "key", "value"))
    scale = layer["scale"]
    with torch.no_grad():
        # Within rows, as a mapping does not see a row's mean
        spread = (scale * (query @ key.mT)).std(-1).mean().item()
    batch, heads, length, size = query.shape
    keys = "" if key.size(2) == length else f":{key.size(2)}"
    about = {
        "shape": f"{batch}x{heads}x{length}{keys}x{size}",
        "queries": layer["name"],
        "spread": round(spread, 2),
        "alpha": round(1.0 + layer["epsilon"].mean().item(), 2),
    }
    grad = torch.randn(query.shape, generator=generator)
    epsilon = layer["epsilon"].requires_grad_()
    return Case(about, query, key, value, grad, epsilon, scale, layer["padding"], layer["causal"])
