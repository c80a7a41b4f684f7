"""Criterions that are registered with fairseq. Needs fairseq."""

# First, for its message where there is no fairseq
from fairseq_entmax import compat as compat
from fairseq_entmax.criterions.head_l0 import LabelSmoothedCrossEntropyWithHeadL0

__all__ = ["LabelSmoothedCrossEntropyWithHeadL0"]
