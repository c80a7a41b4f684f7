"""The rules by which relevance goes back through each kind of step of a Transformer.

Layer-wise relevance propagation (Bach et al. 2015, *On Pixel-Wise Explanations for Non-Linear
Classifier Decisions by Layer-Wise Relevance Propagation*) passes the relevance of every unit
back to the units that it was computed from, in proportion to their contributions, so that the
sum stays the same from layer to layer. Ding et al. 2017 (*Visualizing and Understanding Neural
Machine Translation*) applied it to translation. These are the contributions:

- *A linear layer* ``y_i = sum_j W_ij x_j + b_i``: ``|W_ij x_j|``. The original rule has signed
  contributions. With these, a ``y_i`` near 0 passes back unbounded relevance of both signs, and
  a bias takes some of it away. Absolute contributions give relevance that is never negative and
  sums to what came in, whatever cancels. The bias gets none.
- *A sum of two streams*: ``|x|`` and ``|f(x)|``, unit by unit.
- *Layer normalisation*: its standard deviation is held constant (Ali et al. 2022, *XAI for
  Transformers: Better Explanations through Conservative Propagation*), so it is linear:
  ``y_i = g_i / s * sum_j (delta_ij - 1/d) x_j + b_i``. The gain ``g_i`` and ``s`` scale all
  contributions to ``y_i`` alike, and cancel.
- *An elementwise function*, such as ReLU, and *a factor*, such as a head's gate: all relevance
  goes to the single input. A unit that is 0 contributes nothing to what follows, so it has no
  relevance to pass back: a dead ReLU, or a head whose gate is closed.
- *Attention* ``o_qd = sum_k p_qk v_kd``: its weights are held constant, as in Ali et al., so it
  is linear in the values: ``|p_qk v_kd|``. How the weights were computed does not matter, so
  softmax and entmax have the same rule. A key of weight 0, as entmax gives, gets exactly 0.

A unit may come from its bias alone: all contributions to it are 0. The bias gets no relevance,
so such a unit should have none; if a residual branch comes from bias alone, it counts as 0 in
the sum (:func:`made_by_inputs`). If such a unit has relevance all the same (a hidden unit whose
weights are 0), the relevance stays in the layer and position and goes to the sources of the
layer's other units; see each function.

Relevance is ``(predictions, positions, units)`` and never negative; activations, which all
predictions of a sentence share, are ``(positions, units)``."""

from __future__ import annotations

import torch
from torch import Tensor

# Contributions whose sum is not above this count as none: dividing by less overflows in float32,
# and a weight that decayed this far has no influence
NEGLIGIBLE = 1e-30


def logit(inputs: Tensor, weight: Tensor) -> Tensor:
    """Split a logit's relevance 1 in proportion to ``|weight * inputs|``, evenly if all are 0."""
    return _shares((inputs * weight).abs())


def linear(relevance: Tensor, inputs: Tensor, weight: Tensor) -> Tensor:
    """Pass relevance of a linear layer's output to its inputs ``(positions, inputs)``.

    Relevance of a unit that comes from bias alone goes to the inputs in proportion to their
    contributions to all units together, or evenly if these are 0."""
    sizes, strengths = inputs.abs(), weight.abs()
    per_unit, stranded = _divide(relevance, sizes @ strengths.t())
    received = per_unit @ strengths * sizes
    if stranded is not None:
        shares = _shares(sizes * strengths.sum(dim=0))
        received += stranded.sum(dim=-1, keepdim=True) * shares
    return received


def made_by_inputs(outputs: Tensor, inputs: Tensor, weight: Tensor) -> Tensor:
    """Return a linear layer's outputs, with 0 for those that come from bias alone."""
    return outputs.masked_fill(inputs.abs() @ weight.abs().t() <= NEGLIGIBLE, 0.0)


def layer_norm(relevance: Tensor, inputs: Tensor) -> Tensor:
    """Pass relevance of a layer normalisation to its inputs; if all are 0, each keeps its own."""
    sizes = inputs.abs()
    # |delta_ij - 1/d| is 1/d for every j, and 1 - 2/d more for j = i
    others = 1.0 / inputs.size(-1)
    itself = 1.0 - 2.0 * others
    totals = itself * sizes + others * sizes.sum(dim=-1, keepdim=True)
    per_unit, stranded = _divide(relevance, totals)
    received = itself * per_unit + others * per_unit.sum(dim=-1, keepdim=True)
    received = received * sizes
    return received if stranded is None else received + stranded


def residual(relevance: Tensor, stream: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """Split relevance of ``stream + added`` between the two; ``stream`` gets it if both are 0."""
    total = stream.abs() + added.abs()
    to_added = relevance * torch.where(total > 0, added.abs() / total, 0.0)
    return relevance - to_added, to_added


def weighted_sum(relevance: Tensor, weights: Tensor, values: Tensor) -> Tensor:
    """Pass relevance of heads' outputs ``(predictions, queries, heads, head_dim)`` to their values,
    by the weights ``(heads, queries, keys)``. An output that is 0 has no relevance to pass."""
    sizes = values.abs()
    per_unit, _ = _divide(relevance, torch.einsum("hqk,khd->qhd", weights, sizes))
    return torch.einsum("hqk,pqhd->pkhd", weights, per_unit) * sizes


def _divide(relevance: Tensor, totals: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return relevance per unit of contribution, and relevance without contributions, or None."""
    is_made = totals > NEGLIGIBLE
    # Nearly always; totals, which have no dimension of predictions, are quick to check
    if is_made.all():
        return relevance / totals, None
    per_unit = torch.where(is_made, relevance / totals.clamp(min=NEGLIGIBLE), 0.0)
    return per_unit, relevance.masked_fill(is_made, 0.0)


def _shares(contributions: Tensor) -> Tensor:
    """Divide each row by its sum; a row of sum 0 becomes uniform."""
    totals = contributions.sum(dim=-1, keepdim=True)
    even = 1.0 / contributions.size(-1)
    return torch.where(totals > NEGLIGIBLE, contributions / totals.clamp(min=NEGLIGIBLE), even)
