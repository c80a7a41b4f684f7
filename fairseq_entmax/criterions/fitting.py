"""Losses that do not fit a model: they are infinite for it, or not defined.

fairseq alone ends in a traceback in the first update, or logs a loss that is not a number.
"""

from __future__ import annotations

from typing import Any

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)

from fairseq_entmax.attention import attention_modules
from fairseq_entmax.attentions import CROSS
from fairseq_entmax.criterions.copying import CopyCrossEntropyCriterion
from fairseq_entmax.mappings import PerHeadMapping


def check_loss(criterion: type, model: Any) -> None:
    """Raise ValueError if a criterion, with a penalty on heads or without, does not fit a model."""
    stock = getattr(criterion, "stock", criterion)
    name, penalty = criterion_name(criterion), "" if stock is criterion else "_with_head_l0"
    decoder = getattr(model, "decoder", None)
    has_cutoffs = getattr(decoder, "adaptive_softmax", None) is not None
    if issubclass(stock, AdaptiveLoss) and not has_cutoffs:
        raise ValueError(
            f"--criterion {name} needs a model with --adaptive-softmax-cutoff, such as "
            f"20000,60000: give it, or --criterion cross_entropy{penalty}"
        )
    # The rest is about losses that take the logarithm of any word's probability
    if not issubclass(stock, CrossEntropyCriterion | LabelSmoothedCrossEntropyCriterion):
        return
    if has_cutoffs:
        raise ValueError(
            f"--criterion {name} does not train a model with --adaptive-softmax-cutoff: give "
            f"--criterion adaptive_loss{penalty}, or leave the cutoffs out"
        )
    alpha = model.attention_options.output_alpha
    if alpha > 1:
        raise ValueError(
            f"--criterion {name} is infinite if --output-alpha {alpha:g} gives a word "
            f"probability zero: give --criterion entmax_loss{penalty} --loss-alpha {alpha:g}"
        )
    markers = getattr(decoder, "num_words", 0) - getattr(decoder, "num_generated", 0)
    if markers and not issubclass(stock, CopyCrossEntropyCriterion):
        raise ValueError(
            f"--criterion {name} is infinite with --source-position-markers {markers}, as no source "
            f"has all markers: give --criterion copy_cross_entropy{penalty}"
        )
    if issubclass(stock, LabelSmoothedCrossEntropyCriterionWithAlignment):
        across = [module.mapping for place, _, module in attention_modules(model) if place == CROSS]
        if across and not _has_softmax(across[-1]):
            raise ValueError(
                f"--criterion {name} is infinite if the last cross-attention gives an aligned "
                f"word no weight, and none of its heads is softmax: give that layer softmax, such as "
                f"--cross-attn-mapping 'entmax*5,softmax' for six layers, or --criterion "
                f"label_smoothed_cross_entropy"
            )


def _has_softmax(mapping: Any) -> bool:
    """Whether at least one head of a mapping gives every word some weight."""
    parts = mapping.parts if isinstance(mapping, PerHeadMapping) else [mapping]
    return any(getattr(part, "is_softmax", False) for part in parts)


def criterion_name(criterion: Any) -> str:
    """The name under which a criterion class is registered, or the name of the class."""
    known = (name for name, one in CRITERION_REGISTRY.items() if one is criterion)
    return next(known, criterion.__name__)
