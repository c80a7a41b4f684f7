"""The importance of each attention head for a model's predictions, by relevance propagation.

For each target position, relevance 1 starts at the logit of the word that the model ranks
first, and goes back through decoder and encoder by the rules of ``rules.py``. The relevance of a
head is what arrives at its output, summed over all positions. No relevance is lost on the way.
Queries and keys get none, since attention weights are held constant.

Source: Voita et al. 2019, *Analyzing Multi-Head Self-Attention*, section 4, who use it to compare
the heads of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis.data.data_types import type_of_model
from fairseq_entmax.analysis.importance import ByHead, propagation
from fairseq_entmax.models.base import ModelWithHeads

# Parts without a rule: attribute of a decoder layer to the option that adds it
_UNKNOWN_IN_LAYER = {
    "attn_ln": "--scale-attn",
    "c_attn": "--scale-heads",
    "ffn_layernorm": "--scale-fc",
    "w_resid": "--scale-resids",
}


@dataclass(frozen=True)
class HeadRelevance:
    """Relevance of every head for every prediction.

    A prediction is a target position that is not padding. Predictions come sentence by sentence.

    Attributes:
        heads: attention to layer to ``(predictions, heads)``, from 0 to 1: the part of the
            logit's relevance 1 that arrives at the head. A pruned attention may have 0 heads.
        totals: boundary to ``(predictions,)``: the relevance there, summed over the decoder's and
            the encoder's stream. Boundaries are in the order in which relevance passes them:
            ``decoder output`` (of the top layer), ``decoder layer 5 input`` and on down,
            ``encoder output``, ``encoder layer 5 input`` and on down.
        lengths: how many predictions each sentence has.
    """

    heads: ByHead
    totals: dict[str, Tensor]
    lengths: tuple[int, ...] = ()

    def by_sentence(self, heads: Tensor) -> Tensor:
        """Sum ``(predictions, heads)`` over the predictions of each sentence."""
        return torch.stack([part.sum(dim=0) for part in heads.split(list(self.lengths))])

    def shares(self) -> ByHead:
        """Return each head's share of the relevance of its attention and layer, ``(predictions,
        heads)``. Rows sum to 1, or are zero if the layer's heads have no relevance at all."""
        return {
            attention: {number: _shares_of_heads(heads) for number, heads in layers.items()}
            for attention, layers in self.heads.items()
        }


def head_relevance(
    model: ModelWithHeads, sample: dict[str, Any], predictions_at_once: int = 32
) -> HeadRelevance:
    """Compute the relevance of every head to the top-1 logit of every target position.

    Sentences are processed one by one, without padding, so the batch makes no difference.
    Activations are computed once for each sentence, in evaluation mode and in the model's
    precision; relevance is float32 (float64 for a float64 model).

    Args:
        model: the model; it is left as it was.
        sample: a batch as fairseq's collater makes it, on the model's device.
        predictions_at_once: how many target positions are processed together, 1 or more.
            Memory grows with it and with the sentence's length, not with the batch.

    Raises:
        ValueError: the model has a part without a rule; the message names the part or its option.
    """
    check_rules(model)
    parts: list[HeadRelevance] = []
    lengths: list[int] = []
    with torch.no_grad(), propagation.restored(model.modules(), "training"):
        model.eval()
        for taken, source, target in type_of_model(model).alone(model, sample):
            with propagation.Activations(propagation.watched_modules(model)) as activations:
                model(**taken)
            lengths.append(target)
            positions = torch.arange(target, device=taken["src_tokens"].device)
            for chunk in positions.split(predictions_at_once):
                part = propagation.Propagation(model, activations, source, chunk)
                parts.append(HeadRelevance(part.heads, part.totals))
    heads: ByHead = {
        name: {n: torch.cat([part.heads[name][n] for part in parts]) for n in sorted(layers)}
        for name, layers in parts[0].heads.items()
    }
    totals = {name: torch.cat([part.totals[name] for part in parts]) for name in parts[0].totals}
    return HeadRelevance(heads, totals, tuple(lengths))


def _shares_of_heads(heads: Tensor) -> Tensor:
    totals = heads.sum(dim=1, keepdim=True)
    return torch.where(totals > 0, heads / totals, 0.0)


def check_rules(model: Any) -> None:
    """Refuse models with parts that have no rule."""
    decoder = getattr(model, "decoder", None)
    if decoder is None:
        raise ValueError(
            "no rule propagates relevance through an encoder alone: relevance can only be measured "
            "for models that generate words"
        )
    if model.attention_options.copy is not None:
        raise ValueError(
            "the output of a copying model is a mixture, and no rule propagates the relevance of "
            "its copied part: relevance can only be measured for models that do not copy"
        )
    unsupported = ["--adaptive-softmax-cutoff"] * (decoder.adaptive_softmax is not None)
    unsupported += ["--cross-self-attention"] * getattr(decoder, "cross_self_attention", False)
    for layer in propagation.layers_of(decoder):
        unsupported += [
            option
            for attribute, option in _UNKNOWN_IN_LAYER.items()
            if getattr(layer, attribute, None) is not None
        ]
    if unsupported:
        raise ValueError(
            f"there is no rule to propagate relevance through a model with {unsupported[0]}: leave "
            f"relevance out of the measures"
        )
