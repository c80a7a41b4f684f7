"""fairseq's criterion for classes of texts, with a penalty on open heads."""

from __future__ import annotations

from fairseq.criterions.sentence_prediction import SentencePredictionCriterion

from fairseq_entmax.criterions.head_l0 import with_head_l0

SentencePredictionWithHeadL0 = with_head_l0(SentencePredictionCriterion)
