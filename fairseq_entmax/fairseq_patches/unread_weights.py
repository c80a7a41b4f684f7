"""Skips the weights of the last cross-attention in training if nobody reads them.

fairseq's decoder returns them with every batch, so that layer cannot use a kernel for the whole of
attention. The usual criterions read only word scores. What needs the weights (alignment, copying,
a hook, or somebody else's criterion, model, decoder or task) still gets them, and so does whoever
calls a model directly.

Without it: in training, the last cross-attention computes weights that nobody reads.
Remove when: fairseq's decoder returns weights only on request.
"""

from collections.abc import Callable
from typing import Any

from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.tasks import FairseqTask

from fairseq_entmax import compat
from fairseq_entmax.mappings.base import has_hook

# fairseq's criterions that do; criterions of this package say so themselves
READ_SCORES_ALONE = (AdaptiveLoss, CrossEntropyCriterion, LabelSmoothedCrossEntropyCriterion)


def step_without(step: Callable[..., Any], trainer: Any, *arguments: Any, **options: Any) -> Any:
    """``Trainer.train_step``, in which a decoder may leave out weights that nobody reads."""
    model = trainer.get_model()
    is_usual = type(trainer.task).train_step is FairseqTask.train_step
    if (
        not is_usual
        or not _can_do_without(model)
        or not reads_scores_alone(trainer.get_criterion())
    ):
        return step(trainer, *arguments, **options)
    model.decoder.weights_are_unread = True
    try:
        return step(trainer, *arguments, **options)
    finally:
        model.decoder.weights_are_unread = False


def reads_scores_alone(criterion: Any) -> bool:
    """Whether a criterion is known to read only the scores that a decoder returns."""
    criterion_class = type(getattr(criterion, "stock_criterion", criterion))
    # A subclass may read more
    says_so = vars(criterion_class).get("reads_scores_alone", False)
    return says_so or criterion_class in READ_SCORES_ALONE


def _can_do_without(model: Any) -> bool:
    """Whether the classes of a model and its decoder both declare it, and no hook looks on."""
    decoder: Any = getattr(model, "decoder", None)
    # A subclass may read weights
    if not all(vars(type(one)).get("weights_may_be_unread") for one in (model, decoder)):
        return False
    # Not by iterating: LayerDrop would skip layers at random
    last = decoder.layers[-1] if len(decoder.layers) else None
    watched = filter(None, (model, decoder, last, getattr(last, "encoder_attn", None)))
    return not (compat.has_global_hooks() or any(map(has_hook, watched)))
