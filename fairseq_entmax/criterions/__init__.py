"""Criterions that are registered with fairseq. Needs fairseq."""

# First, for its message where there is no fairseq
from fairseq_entmax import compat as compat
from fairseq_entmax.criterions.copying import CopyCrossEntropyCriterion
from fairseq_entmax.criterions.head_l0 import plain_criterion, with_head_l0
from fairseq_entmax.criterions.sparse_output import EntmaxLossCriterion

__all__ = [
    "CopyCrossEntropyCriterion",
    "EntmaxLossCriterion",
    "plain_criterion",
    "with_head_l0",
]
