"""The model ``entmax_bart`` and its architectures.

It is fairseq's ``bart``, for denoising, translation and summaries, with another mapping from scores to
weights. ``bart_base`` becomes ``entmax_bart_base``, ``mbart_large`` becomes ``entmax_mbart_large``.
"""

from __future__ import annotations

from typing import ClassVar

from fairseq.models import register_model
from fairseq.models.bart import BARTModel

from fairseq_entmax.models.base import register_counterparts
from fairseq_entmax.models.entmax_transformer import EntmaxTransformerModel


@register_model("entmax_bart")
class EntmaxBARTModel(EntmaxTransformerModel, BARTModel):
    """fairseq's ``bart`` with alpha-entmax attention.

    Takes every option of fairseq's ``bart``, and those of :mod:`fairseq_entmax.models.config`. A
    checkpoint of a stock ``bart`` can be loaded: what it lacks starts as in a new model, and is logged.

    Source: Lewis et al. 2020, *BART: Denoising Sequence-to-Sequence Pre-training*.
    """

    scriptable_class = BARTModel
    weights_may_be_unread: ClassVar[bool] = True

    def set_beam_size(self, beam: int) -> None:
        """Nothing: fairseq would keep it after a search, and take rows of a batch for one beam."""


register_counterparts("bart", EntmaxBARTModel)
