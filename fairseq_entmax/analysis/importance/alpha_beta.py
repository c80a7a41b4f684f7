"""Relevance as the program of Voita et al. 2019 propagates it, by the αβ rule with one half each.

A unit hands one half of its relevance to what adds to it and the other to what takes from it, each
in proportion (Bach et al. 2015, equation 60). Unlike in ``rules.py``

- *a bias* ``b_i`` is a contribution of ``b_i / n`` to each of the unit's ``n`` inputs;
- *layer normalisation* and *attention* are made linear by their derivatives at the inputs: an input
  contributes its slope times its value. So a head's relevance goes to its queries, keys and values;
- what arrives at a position, or of attention at a head, is scaled to what went out of it: where all
  contributions have one sign, the other's half would be lost. The program's ε of 1e-5 is left out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis.importance.propagation import Propagation, precise
from fairseq_entmax.analysis.importance.rules import NEGLIGIBLE
from fairseq_entmax.attentions import CROSS, DECODER_SELF


class AlphaBeta(Propagation):
    """Likewise, by these rules."""

    def _of_logits(self, features: Tensor, weights: Tensor) -> Tensor:
        ones = features.new_ones(1, len(features), 1)
        return _linear(ones, features, weights[:, None], features.new_zeros(1))[0]

    def _parted(
        self, relevance: Tensor, residual: Tensor, projection: Any
    ) -> tuple[Tensor, Tensor]:
        length = relevance.size(1)
        both = torch.stack([residual[:length], self._output(projection)[:length]], dim=-1)
        received = relevance[..., None] * _shares(both)
        in_stream, added = _scaled(received.flatten(2), relevance).view_as(received).unbind(-1)
        return in_stream, added

    def _through_linear(self, layer: Any, relevance: Tensor, *beside: Any) -> Tensor:
        """Of the outputs of a layer, with those of layers of the same inputs beside them."""
        inputs = self._input(layer)[: relevance.size(1)]
        weight = torch.cat([precise(one.weight) for one in (layer, *beside)])
        zeros = weight.new_zeros(len(layer.weight))
        biases = [zeros if one.bias is None else precise(one.bias) for one in (layer, *beside)]
        return _linear(relevance, inputs, weight.expand(len(inputs), -1, -1), torch.cat(biases))

    def _through_norm(self, norm: Any, relevance: Tensor) -> Tensor:
        inputs = self._input(norm)[: relevance.size(1)]
        centred, width = inputs - inputs.mean(dim=-1, keepdim=True), inputs.size(-1)
        variance = (centred.square().mean(dim=-1) + norm.eps)[:, None, None]
        slopes = torch.eye(width).to(inputs) - 1 / width
        slopes = slopes - centred[:, :, None] * centred[:, None] / (width * variance)
        weights = precise(norm.weight)[:, None] * slopes / variance.sqrt()
        return _linear(relevance, inputs, weights, precise(norm.bias))

    def _through_heads(
        self, name: str, attention: Any, relevance: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        three = query, key, value = attention.q_proj, attention.k_proj, attention.v_proj
        projected = [self._output(x).unflatten(-1, (attention.num_heads, -1)) for x in three]
        scores = self._input(attention.mapping)
        made = _derivatives(attention.mapping, scores, projected[-1])
        length = relevance.size(1)
        behind = length if name == DECODER_SELF else scores.size(-1)
        parts = [
            _through_head(
                relevance[:, :, head],
                *(one[head, :length, :behind] for one in made),
                *(x[:n, head] for x, n in zip(projected, (length, behind, behind), strict=True)),
            )
            for head in range(attention.num_heads)
        ]
        # (predictions, positions, heads side by side)
        of_queries, *others = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
        if name != CROSS:
            together = torch.cat([of_queries, *others], dim=-1)
            return None, self._through_linear(query, together, key, value)
        of_source = self._through_linear(key, torch.cat(others, dim=-1), value)
        return self._through_linear(query, of_queries), of_source


def _shares(impacts: Tensor) -> Tensor:
    """Which share of a unit's relevance each contribution gets, ``(…, contributions)``."""
    both = torch.stack([impacts, -impacts]).clamp(min=0)
    return (both / both.sum(dim=-1, keepdim=True).clamp(min=NEGLIGIBLE)).mean(dim=0)


def _scaled(received: Tensor, sent: Tensor) -> Tensor:
    """With the sums over the last dimension of what was sent; even where nothing was received."""
    total, even = received.sum(dim=-1, keepdim=True), 1 / received.size(-1)
    shares = (received / total.clamp(min=NEGLIGIBLE)).where(total > NEGLIGIBLE, even)
    return shares * sent.sum(dim=-1, keepdim=True)


def _linear(relevance: Tensor, inputs: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """Relevance ``(predictions, positions, units)``, to inputs ``(positions, inputs)``; weights are
    ``(positions, units, inputs)``."""
    received = [
        relevance[:, place] @ _shares(weight * row + bias[:, None] / len(row))
        for place, (row, weight) in enumerate(zip(inputs, weights, strict=True))
    ]
    return _scaled(torch.stack(received, dim=1), relevance)


def _derivatives(mapping: Any, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The weights of scores ``(heads, queries, keys)``, and how fast each output of values
    ``(keys, heads, head_dim)`` grows with each score: ``(heads, queries, keys, head_dim)``."""
    with torch.enable_grad():
        scores = scores[None].detach().requires_grad_()
        weights = mapping(scores)
        slopes = [
            torch.autograd.grad(weights, scores, one.expand_as(weights), retain_graph=True)[0][0]
            for one in values.permute(2, 1, 0)[:, None, :, None]
        ]
    return weights[0].detach(), torch.stack(slopes, dim=-1)


def _through_head(
    relevance: Tensor, weights: Tensor, slopes: Tensor, *projected: Tensor
) -> list[Tensor]:
    """Relevance of a head's outputs ``(predictions, queries, head_dim)``, to its queries, keys and
    values, each ``(predictions, positions, head_dim)``."""
    queries, keys, values = projected
    products = queries[:, None] * keys * queries.size(-1) ** -0.5
    by_key = torch.einsum("qkd,qke->qdke", slopes, products)
    parts = [by_key.sum(dim=2), by_key, torch.einsum("qk,kd->qdk", weights, values)]
    shares = _shares(torch.cat([part.flatten(2) for part in parts], dim=-1))
    split = shares.split([part[0, 0].numel() for part in parts], dim=-1)
    each = [share.view_as(part) for share, part in zip(split, parts, strict=True)]
    hows = ("pqd,qde->pqe", "pqd,qdke->pke", "pqd,qdk->pkd")
    received = [torch.einsum(how, relevance, one) for how, one in zip(hows, each, strict=True)]
    together = _scaled(torch.cat([one.flatten(1) for one in received], 1), relevance.flatten(1))
    scaled = together.split([one[0].numel() for one in received], dim=1)
    return [one.view_as(part) for one, part in zip(scaled, received, strict=True)]
