"""How relevance goes back through each kind of step of a Transformer.

Layer-wise relevance propagation (Bach et al. 2015, *On Pixel-Wise Explanations for Non-Linear
Classifier Decisions by Layer-Wise Relevance Propagation*) hands the relevance of every unit
back to the units that it was computed from, in proportion to what each contributed, so that
the sum stays the same from layer to layer. Ding et al. 2017 (*Visualizing and Understanding
Neural Machine Translation*) brought it to translation. What counts as a contribution:

- *A linear layer* ``y_i = sum_j W_ij x_j + b_i``: ``|W_ij x_j|``. With the signed
  contributions of the original rule, ``y_i`` near 0 sends out relevance without bound, of
  both signs, and a bias takes some of it away. Absolute ones are never negative and sum to
  the relevance that came in, whatever cancels. The bias gets none.
- *A sum of two streams*: ``|x|`` and ``|f(x)|``, unit by unit.
- *Layer normalisation*: its standard deviation is held constant (Ali et al. 2022, *XAI for
  Transformers: Better Explanations through Conservative Propagation*), so it is linear:
  ``y_i = g_i / s * sum_j (delta_ij - 1/d) x_j + b_i``. The gain ``g_i`` and ``s`` are in every
  contribution to ``y_i`` alike, and cancel.
- *An elementwise function*, such as ReLU, and *a factor*, such as a head's gate: all of it
  goes to the one unit that there is. A unit that is 0 contributes nothing to what follows,
  and so has no relevance to hand on: a dead ReLU, a head whose gate is closed.
- *Attention* ``o_qd = sum_k p_qk v_kd``: its weights are held constant, as Ali et al. do, so
  it is linear in the values: ``|p_qk v_kd|``. Nothing in this knows how the weights came
  about, so it is the rule of softmax and of entmax alike; a key with the weight 0, which
  entmax gives, gets exactly 0.

A unit may have been made by its bias alone: all contributions to it are 0. The bias gets no
relevance, so such a unit should have none; what a residual branch made by bias alone is worth
0 in the sum (:func:`made_by_inputs`). Where it has some all the same (a hidden unit whose
weights are 0; a value of 0), the relevance stays in the layer and position: it goes where the
layer's other units have theirs from, see each function.

Relevance is ``(predictions, positions, units)`` and never negative; activations, which all
predictions of a sentence share, are ``(positions, units)``."""

from __future__ import annotations

import torch
from torch import Tensor

# Contributions that sum to no more than this count as none: a division by less overflows in
# float32, and a weight that decay made this small has no influence
NEGLIGIBLE = 1e-30


def logit(inputs: Tensor, weight: Tensor) -> Tensor:
    """Relevance 1 of one logit for each prediction, in proportion to ``|weight * inputs|``, or even."""
    return _shares((inputs * weight).abs())


def linear(relevance: Tensor, inputs: Tensor, weight: Tensor) -> Tensor:
    """Relevance of a linear layer's output, to its inputs ``(positions, inputs)``.

    What reaches a unit made by the bias alone goes to the inputs in proportion to their
    contributions to all units together, or evenly where these are 0."""
    sizes, strengths = inputs.abs(), weight.abs()
    per_unit, stranded = _divide(relevance, sizes @ strengths.t())
    received = per_unit @ strengths * sizes
    if stranded is not None:
        shares = _shares(sizes * strengths.sum(dim=0))
        received += stranded.sum(dim=-1, keepdim=True) * shares
    return received


def made_by_inputs(outputs: Tensor, inputs: Tensor, weight: Tensor) -> Tensor:
    """A linear layer's outputs, with 0 where the bias alone made them."""
    return outputs.masked_fill(inputs.abs() @ weight.abs().t() <= NEGLIGIBLE, 0.0)


def layer_norm(relevance: Tensor, inputs: Tensor) -> Tensor:
    """Relevance of a layer normalisation's output, to its inputs; where all are 0 each keeps its own."""
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
    """Relevance of ``stream + added``, to the two; where both are 0 it goes to ``stream``."""
    total = stream.abs() + added.abs()
    to_added = relevance * torch.where(total > 0, added.abs() / total, 0.0)
    return relevance - to_added, to_added


def weighted_sum(relevance: Tensor, weights: Tensor, values: Tensor) -> Tensor:
    """Relevance of heads' outputs ``(predictions, queries, heads, head_dim)``, to their values.

    What reaches an output whose values are 0 wherever the weights are not goes to the keys in
    proportion to their weights, ``(heads, queries, keys)``."""
    sizes = values.abs()
    totals = torch.einsum("hqk,khd->qhd", weights, sizes)
    per_unit, stranded = _divide(relevance, totals)
    received = torch.einsum("hqk,pqhd->pkhd", weights, per_unit) * sizes
    if stranded is not None:
        received += torch.einsum("hqk,pqhd->pkhd", weights, stranded)
    return received


def _divide(relevance: Tensor, totals: Tensor) -> tuple[Tensor, Tensor | None]:
    """Relevance for each unit of contribution; and that of what has no contributions, None without."""
    is_made = totals > NEGLIGIBLE
    # Nearly always; what is known of the few totals need not be looked at for each prediction
    if is_made.all():
        return relevance / totals, None
    per_unit = torch.where(is_made, relevance / totals.clamp(min=NEGLIGIBLE), 0.0)
    return per_unit, relevance.masked_fill(is_made, 0.0)


def _shares(contributions: Tensor) -> Tensor:
    """Each row divided by its sum; where that is 0, even."""
    totals = contributions.sum(dim=-1, keepdim=True)
    even = 1.0 / contributions.size(-1)
    return torch.where(totals > NEGLIGIBLE, contributions / totals.clamp(min=NEGLIGIBLE), even)
