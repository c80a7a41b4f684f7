"""Criterions that are registered with fairseq. Needs fairseq."""

# First, for its message where there is no fairseq
from fairseq_entmax import compat as compat
from fairseq_entmax.criterions.copying import (
    CopyCrossEntropyCriterion,
    CopyCrossEntropyWithHeadL0,
)
from fairseq_entmax.criterions.head_l0 import (
    AdaptiveLossWithHeadL0,
    CrossEntropyWithHeadL0,
    LabelSmoothedCrossEntropyWithHeadL0,
    SentencePredictionWithHeadL0,
    plain_criterion,
    with_head_l0,
)
from fairseq_entmax.criterions.sparse_output import EntmaxLossCriterion, EntmaxLossWithHeadL0

__all__ = [
    "AdaptiveLossWithHeadL0",
    "CopyCrossEntropyCriterion",
    "CopyCrossEntropyWithHeadL0",
    "CrossEntropyWithHeadL0",
    "EntmaxLossCriterion",
    "EntmaxLossWithHeadL0",
    "LabelSmoothedCrossEntropyWithHeadL0",
    "SentencePredictionWithHeadL0",
    "plain_criterion",
    "with_head_l0",
]
