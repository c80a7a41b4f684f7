"""A teacher: a trained model whose probabilities the model learns, besides its targets."""

from dataclasses import dataclass
from typing import Any

from fairseq_entmax.models.feature import Feature, option


def check_weight(value: Any) -> float:
    """Return a number from 0 to 1, or raise ValueError."""
    if not 0 <= float(value) <= 1:
        raise ValueError(f"the weight must be from 0 to 1, not {value!r}")
    return float(value)


@dataclass
class Teaching(Feature):
    """The options of a teacher; :class:`fairseq_entmax.criterions.teacher.Teacher` applies them."""

    name = "teaching"
    teacher: str | None = option(
        None,
        "a checkpoint whose probabilities the model also learns to match, such as the model "
        "before its heads were pruned",
        str,
        "CHECKPOINT",
        "none",
    )
    teacher_weight: float = option(
        0.5,
        "w: the loss is 1 - w times the criterion's plus w times the divergence from the teacher, "
        "from 0 to 1",
        check_weight,
        "NUMBER",
    )
