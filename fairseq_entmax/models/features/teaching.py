"""A teacher for a training: a trained model whose probabilities are learned too."""

from dataclasses import dataclass
from typing import Any

from fairseq_entmax.criterions.teacher import Teacher
from fairseq_entmax.models.feature import Feature, option


def check_weight(value: Any) -> float:
    """A number from 0 to 1, or a ValueError."""
    number = -1.0 if isinstance(value, bool) else float(value)
    if not 0 <= number <= 1:
        raise ValueError(f"the weight must be from 0 to 1, not {value!r}")
    return number


@dataclass
class Teaching(Feature):
    """The teacher of ``--teacher``."""

    name = "teaching"
    teacher: str | None = option(
        None,
        "a checkpoint whose probabilities of words the model learns beside what its criterion asks "
        "for, such as that of the model before heads were pruned",
        str,
        "CHECKPOINT",
        "none",
    )
    teacher_weight: float = option(
        0.5,
        "w: the loss is 1 - w times the criterion's and w times the divergence from the teacher's "
        "probabilities, from 0 to 1",
        check_weight,
        "NUMBER",
    )

    def teach(self, model: Any, criterion: Any, task: Any) -> None:
        """Let a criterion ask for the teacher's probabilities too, before a model's training."""
        if self.teacher and self.teacher_weight:
            teacher = Teacher(self.teacher, task, self.teacher_weight)
            teacher.check(model)
            teacher.teach(criterion)
