"""Relevance as the program of Voita et al. 2019 propagates it, by the αβ rule with one half each.

A unit hands one half of its relevance to what adds to it and the other to what takes from it, each
in proportion (Bach et al. 2015, equation 60). Unlike in ``rules.py``

- *a bias* ``b_i`` is a contribution of ``b_i / n`` to each of the unit's ``n`` inputs;
- *layer normalisation* and *attention* are made linear by their derivatives at the inputs: an input
  contributes its slope times its value. So a head's relevance goes to its queries, keys and values;
- where all contributions to a unit have one sign, the half of the other would be lost. What arrives
  at a position, or of attention at a head, is scaled to what went out of it.

The program's ε of 1e-5 beside each sum is left out, so that nothing is lost."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax.analysis.importance.propagation import Propagation, precise
from fairseq_entmax.analysis.importance.rules import NEGLIGIBLE
from fairseq_entmax.attentions import CROSS, DECODER_SELF


class AlphaBeta(Propagation):
    """Likewise, by these rules."""

    def _of_logits(self, features: Tensor, projection: nn.Linear, words: Tensor) -> Tensor:
        ones = features.new_ones(1, len(features), 1)
        weights = precise(projection.weight[words])[:, None]
        biases = None if projection.bias is None else precise(projection.bias[words])[:, None]
        return linear(ones, features, weights, biases)[0]

    def _parted(
        self, relevance: Tensor, residual: Tensor, projection: nn.Linear
    ) -> tuple[Tensor, Tensor]:
        length = relevance.size(1)
        both = torch.stack([residual[:length], self._output(projection)[:length]], dim=-1)
        received = relevance[..., None] * transition(both)
        in_stream, added = _scaled(received.flatten(2), relevance).view_as(received).unbind(-1)
        return in_stream, added

    def _through_linear(self, layer: nn.Linear, relevance: Tensor) -> Tensor:
        return self._through_together([layer], relevance)

    def _through_together(self, layers: list[Any], relevance: Tensor) -> Tensor:
        """Relevance of what several layers make of the same inputs, side by side."""
        weight = torch.cat([precise(layer.weight) for layer in layers])
        biases = [precise(layer.bias) for layer in layers if layer.bias is not None]
        inputs = self._input(layers[0])[: relevance.size(1)]
        each = weight.expand(len(inputs), -1, -1)
        bias = torch.cat(biases).expand(len(inputs), -1) if biases else None
        return linear(relevance, inputs, each, bias)

    def _through_norm(self, norm: Any, relevance: Tensor) -> Tensor:
        inputs = self._input(norm)[: relevance.size(1)]
        centred = inputs - inputs.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True) + norm.eps
        width = inputs.size(-1)
        slope = torch.eye(width).to(inputs) - 1 / width
        slopes = slope - centred[:, :, None] * centred[:, None] / (width * variance[..., None])
        gain = precise(norm.weight) / variance.sqrt()
        bias = precise(norm.bias).expand_as(inputs)
        return linear(relevance, inputs, gain[:, :, None] * slopes, bias)

    def _through_heads(
        self, name: str, attention: Any, relevance: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        projections = attention.q_proj, attention.k_proj, attention.v_proj
        shape = attention.num_heads, -1
        queries, keys, values = (self._output(one).unflatten(-1, shape) for one in projections)
        scores = self._input(attention.mapping)
        length = relevance.size(1)
        behind = length if name == DECODER_SELF else len(keys)
        weights, slopes = derivatives(attention.mapping, scores, values)
        parts = [
            through_head(
                relevance[:, :, head],
                weights[head, :length, :behind],
                slopes[head, :length, :behind],
                *(queries[:length, head], keys[:behind, head], values[:behind, head]),
            )
            for head in range(attention.num_heads)
        ]
        # (predictions, positions, heads side by side)
        of_queries, of_keys, of_values = (torch.cat(part, -1) for part in zip(*parts, strict=True))
        if name != CROSS:
            side_by_side = torch.cat([of_queries, of_keys, of_values], dim=-1)
            return None, self._through_together([*projections], side_by_side)
        of_source = torch.cat([of_keys, of_values], dim=-1)
        from_source = self._through_together([*projections[1:]], of_source)
        return self._through_linear(attention.q_proj, of_queries), from_source


def transition(impacts: Tensor) -> Tensor:
    """Which share of a unit's relevance each contribution gets, ``(…, contributions)``."""
    added, taken = impacts.clamp(min=0), impacts.clamp(max=0)
    of_added = added / added.sum(dim=-1, keepdim=True).clamp(min=NEGLIGIBLE)
    of_taken = taken / taken.sum(dim=-1, keepdim=True).clamp(max=-NEGLIGIBLE)
    return (of_added + of_taken) / 2


def linear(relevance: Tensor, inputs: Tensor, weights: Tensor, biases: Tensor | None) -> Tensor:
    """Relevance ``(predictions, positions, units)``, to the inputs ``(positions, inputs)``, with
    weights ``(positions, units, inputs)`` and biases ``(positions, units)`` of each position."""
    received = []
    for place, (values, weight) in enumerate(zip(inputs, weights, strict=True)):
        impacts = weight * values
        if biases is not None:
            impacts = impacts + biases[place, :, None] / len(values)
        received.append(relevance[:, place] @ transition(impacts))
    return _scaled(torch.stack(received, dim=1), relevance)


def derivatives(mapping: Any, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
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


def through_head(
    relevance: Tensor,
    weights: Tensor,
    slopes: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Relevance of a head's outputs ``(predictions, queries, head_dim)``, to its queries, keys and
    values, each ``(predictions, positions, head_dim)``.

    Weights and slopes are of :func:`derivatives`, without heads."""
    scale = queries.size(-1) ** -0.5
    products = scale * queries[:, None] * keys  # (queries, keys, head_dim)
    by_key = torch.einsum("qkd,qke->qdke", slopes, products)
    by_value = torch.einsum("qk,kd->qdk", weights, values)
    parts = [by_key.sum(dim=2), by_key.flatten(2), by_value]
    shares = transition(torch.cat(parts, dim=-1))
    of_query, of_keys, of_value = shares.split([part.size(-1) for part in parts], dim=-1)
    received = [
        torch.einsum("pqd,qde->pqe", relevance, of_query),
        torch.einsum("pqd,qdke->pke", relevance, of_keys.view_as(by_key)),
        torch.einsum("pqd,qdk->pkd", relevance, of_value),
    ]
    sizes = [part[0].numel() for part in received]
    together = torch.cat([part.flatten(1) for part in received], dim=1)
    scaled = _scaled(together, relevance.flatten(1)).split(sizes, dim=1)
    first, second, third = (s.view_as(r) for s, r in zip(scaled, received, strict=True))
    return first, second, third


def _scaled(received: Tensor, sent: Tensor) -> Tensor:
    """With the sums over the last dimension of what was sent; even where nothing was received."""
    total = received.sum(dim=-1, keepdim=True)
    shares = torch.where(
        total > NEGLIGIBLE, received / total.clamp(min=NEGLIGIBLE), 1 / received.size(-1)
    )
    return shares * sent.sum(dim=-1, keepdim=True)
