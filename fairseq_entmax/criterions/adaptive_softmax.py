"""Losses for a model with an adaptive softmax, and for one without."""

from __future__ import annotations

from typing import Any

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

# By name, which fairseq's loss refuses
_BACKENDS = ("c10d", "pytorch_ddp")


def check_for_cutoffs(
    criterion: Any, has_adaptive_softmax: bool, ddp_backend: str | None = None
) -> None:
    """Refuse a loss, with a penalty on heads or without, that does not fit a model's output.

    fairseq meets an adaptive softmax in its usual losses, and its adaptive loss in a model without, in
    a traceback of the first update.

    Args:
        criterion: the class; None for one that is not known.
        has_adaptive_softmax: whether the model has one.
        ddp_backend: how workers are held together; None where that is not known.

    Raises:
        ValueError: names the loss, and what to give.
    """
    stock = getattr(criterion, "stock", criterion)
    if not isinstance(stock, type):
        return
    name = criterion_name(criterion)
    penalty = "" if stock is criterion else "_with_head_l0"
    if issubclass(stock, AdaptiveLoss):
        if not has_adaptive_softmax:
            raise ValueError(
                f"--criterion {name} needs a model with --adaptive-softmax-cutoff, such as "
                f"20000,60000: give it, or --criterion cross_entropy{penalty}"
            )
        if ddp_backend in _BACKENDS:
            raise ValueError(
                f"--criterion {name} does not work with --ddp-backend {ddp_backend}: give "
                f"--ddp-backend legacy_ddp"
            )
    elif has_adaptive_softmax and issubclass(
        stock, CrossEntropyCriterion | LabelSmoothedCrossEntropyCriterion
    ):
        raise ValueError(
            f"--criterion {name} does not train a model with --adaptive-softmax-cutoff: give "
            f"--criterion adaptive_loss{penalty}, or leave the cutoffs out"
        )


def criterion_name(criterion: Any) -> str:
    """The name that a class of criterions is registered by, or its own."""
    known = (name for name, one in CRITERION_REGISTRY.items() if one is criterion)
    return next(known, getattr(criterion, "__name__", str(criterion)))
