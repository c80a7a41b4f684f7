"""Weights that fairseq asks its last cross-attention for in training, and that nobody reads.

fairseq's decoder returns them with every batch, which keeps that layer from a kernel for the whole of
attention. The usual criterions read the scores of words alone. What needs the weights (alignment, copying,
a criterion or a decoder of somebody else's) gets them as before, and so does whoever calls a model himself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

# Of fairseq's. Of this package's, those that say so themselves
READ_SCORES_ALONE = (AdaptiveLoss, CrossEntropyCriterion, LabelSmoothedCrossEntropyCriterion)
SAYS_SO = "reads_scores_alone"
# What a decoder has that can do without
UNREAD = "weights_are_unread"


def step_without(step: Callable[..., Any], trainer: Any, *arguments: Any, **options: Any) -> Any:
    """``Trainer.train_step`` in which a decoder need not return weights that nobody reads."""
    decoder = getattr(trainer.get_model(), "decoder", None)
    if not _can_do_without(decoder) or not reads_scores_alone(trainer.get_criterion()):
        return step(trainer, *arguments, **options)
    setattr(decoder, UNREAD, True)
    try:
        return step(trainer, *arguments, **options)
    finally:
        setattr(decoder, UNREAD, False)


def reads_scores_alone(criterion: Any) -> bool:
    """Whether a criterion is known to read nothing else of what a decoder returns."""
    kind = type(getattr(criterion, "stock_criterion", criterion))
    # A class derived from it may read more
    return kind in READ_SCORES_ALONE or bool(vars(kind).get(SAYS_SO))


def _can_do_without(decoder: Any) -> bool:
    return UNREAD in vars(type(decoder))
