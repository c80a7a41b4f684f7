"""A teacher: a trained model whose probabilities the model learns, besides its targets."""

from dataclasses import dataclass

from fairseq_entmax.mappings.functional import number_in
from fairseq_entmax.models.feature import Feature, option


@dataclass
class Teaching(Feature):
    """The options of a teacher; :class:`fairseq_entmax.criterions.teacher.Teacher` applies them."""

    name = "teaching"
    teacher: str | None = option(
        None,
        "a checkpoint whose probabilities the model also learns to match, such as, for a "
        "pruned model, the whole one after as much more training",
        str,
        "CHECKPOINT",
        "none",
    )
    teacher_weight: float = option(
        0.5,
        "w: the loss is 1 - w times the criterion's plus w times the divergence from the teacher, from 0 to 1",
        lambda value: number_in(value, "the weight", lambda w: 0 <= w <= 1, "from 0 to 1"),
        "NUMBER",
    )
