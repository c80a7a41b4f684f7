"""The model ``entmax_roberta`` and its architectures.

It is fairseq's ``roberta``, an encoder that fills in masked words and classifies texts, with another
mapping from attention scores to weights. ``roberta_base`` becomes ``entmax_roberta_base``.
"""

from __future__ import annotations

from typing import Any

from fairseq.models import register_model
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerEncoder
from torch import nn

from fairseq_entmax.attention.scripting import Scriptable
from fairseq_entmax.attentions import ENCODER_SELF
from fairseq_entmax.models.base import ModelWithHeads, register_counterparts


class EntmaxRobertaEncoder(Scriptable, TransformerEncoder):
    """fairseq's encoder of words, of which ``torch.jit.script`` makes a copy."""

    scriptable_class = TransformerEncoder


@register_model("entmax_roberta")
class EntmaxRobertaModel(ModelWithHeads, RobertaModel):
    """fairseq's ``roberta`` with alpha-entmax attention.

    Takes every option of fairseq's ``roberta``, and those of :mod:`fairseq_entmax.models.config` that
    apply to an encoder. A checkpoint of a stock ``roberta`` can be loaded: what it lacks starts as in
    a new model, and is logged.

    Source: Liu et al. 2019, *RoBERTa: A Robustly Optimized BERT Pretraining Approach*.
    """

    attentions = (ENCODER_SELF,)

    def __init__(self, args: Any, encoder: Any) -> None:
        encoder.sentence_encoder.__class__ = EntmaxRobertaEncoder  # fairseq names no class to set
        super().__init__(args, encoder)

    def scriptable_form(self) -> nn.Module:
        raise ValueError(
            "a roberta cannot be scripted or exported as a whole, and neither can fairseq's own: script "
            "model.encoder.sentence_encoder, which returns the states of the words"
        )


register_counterparts("roberta", EntmaxRobertaModel)
