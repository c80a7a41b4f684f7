"""fairseq's loss of word alignments, and attention that gives a word no weight."""

from __future__ import annotations

from typing import Any

from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)

from fairseq_entmax.criterions.adaptive_softmax import criterion_name
from fairseq_entmax.mappings import HeadsApart, Mapping


def check_for_alignments(criterion: Any, mapping: Mapping | None) -> None:
    """Refuse the loss of alignments where it may be infinite.

    It is the negative logarithm of the weights of the last cross-attention, averaged over heads, at
    aligned words: of 0 where no head is softmax, and with it every gradient of that update is NaN.

    Args:
        criterion: the class.
        mapping: of the last cross-attention; None where it has no heads.

    Raises:
        ValueError: it is that loss, and no head there is softmax.
    """
    is_it = isinstance(criterion, type) and issubclass(
        criterion, LabelSmoothedCrossEntropyCriterionWithAlignment
    )
    if not is_it or _has_softmax(mapping):
        return
    raise ValueError(
        f"--criterion {criterion_name(criterion)} is infinite where the last cross-attention gives an aligned word no "
        f"weight, and none of its heads is softmax: give its layer one, such as --cross-attn-mapping "
        f"'entmax*5,softmax' for six layers, or --criterion label_smoothed_cross_entropy"
    )


def _has_softmax(mapping: Mapping | None) -> bool:
    """Whether a mapping, of at least one head, gives every word some weight."""
    parts = mapping.parts if isinstance(mapping, HeadsApart) else [mapping]
    return any(bool(getattr(part, "is_softmax", False)) for part in parts)
