"""Criterions, which register themselves with fairseq. Needs fairseq."""

# Imported first, as its error says what to install if fairseq is missing
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
