"""Measures of a whole model: one object computes, writes and shows each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from fairseq_entmax.analysis.measures.base import Fields, JsonSchema, number_schema
from fairseq_entmax.analysis.measures.rows import Sums
from fairseq_entmax.attentions import ENCODER_SELF

if TYPE_CHECKING:
    from torch import Tensor


class Predictions(NamedTuple):
    """A model's output for a batch, with the targets and which of them count."""

    model: Any
    output: tuple[Tensor, Any]
    log_probs: Tensor
    target: Tensor
    counts: Tensor


class ModelMeasure:
    """Numbers of a model, in a field that only entries of the models it applies to have.

    Attributes:
        about, numbers: the schema's description of the field, and the schema of each number.
        columns: of the table of models: title, style in ``STYLES`` of ``summary.js``, number.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    numbers: ClassVar[dict[str, JsonSchema]]
    columns: ClassVar[tuple[tuple[str, str, str], ...]] = ()

    @property
    def schema(self) -> JsonSchema:
        required = {"required": list(self.numbers), "description": self.about}
        shape = {"type": "object", "additionalProperties": False}
        return {**shape, **required, "properties": self.numbers}

    def is_of(self, model: Any) -> bool:
        return True

    def update(self, predictions: Predictions, sums: Sums) -> None:
        """Add a batch to the model's sums, which also have ``loss`` and ``unreachable``."""

    def result(self, model: Any, sums: Sums) -> Fields:
        raise NotImplementedError


def _unreachable(meaning: str) -> JsonSchema:
    return {"$ref": "#/$defs/count", "description": meaning}


class Copying(ModelMeasure):
    """How much of a model's output is copied from the source."""

    name, about = "copying", "Only for a model that copies words from its source."
    numbers: ClassVar = {
        "share": number_schema(
            "The share of the copy in the output, 1 - g, mean over target words."
        ),
        "unreachable": _unreachable(
            "Target tokens with probability zero: markers of words that the copy leaves out. The "
            "loss does not include them."
        ),
    }
    columns = (("Copied (1 − g)", "percent", "share"), ("Unreachable", "count", "unreachable"))

    def is_of(self, model: Any) -> bool:
        return model.attention_options.copy is not None

    def update(self, predictions: Predictions, sums: Sums) -> None:
        model, (_, extra), _, target, counts = predictions
        is_word = counts & (target != model.decoder.dictionary.eos())
        sums.add("copied", (-extra["copy"].switch.double()).sigmoid()[is_word].sum())
        sums.add("copied/count", is_word.sum())

    def result(self, model: Any, sums: Sums) -> Fields:
        return {"share": sums.total_mean("copied"), "unreachable": int(sums["unreachable"])}


class SparseOutput(ModelMeasure):
    """How many words the output gives a probability above zero."""

    name = "output"
    about = "Only for a model whose output gives words a probability of exactly zero."
    numbers: ClassVar = {
        "alpha": {
            **{"type": "number", "minimum": 1, "maximum": 2},
            "description": "α of the output's entmax.",
        },
        "support": number_schema(
            "Number of words with a probability above zero, mean over targets.", largest=None
        ),
        "unreachable": _unreachable(
            "Targets with probability zero. The loss does not include them."
        ),
    }
    columns = (
        ("Words with nonzero probability", "tenths", "support"),
        ("Targets with zero probability", "count", "unreachable"),
    )

    def is_of(self, model: Any) -> bool:
        from fairseq_entmax.analysis.models.likelihood import has_zeros

        return has_zeros(model)

    def update(self, predictions: Predictions, sums: Sums) -> None:
        supports = (predictions.log_probs > -math.inf).sum(dim=-1)
        sums.add("support", supports[predictions.counts].sum())
        sums.add("support/count", predictions.counts.sum())

    def result(self, model: Any, sums: Sums) -> Fields:
        numbers = {"alpha": model.output_alpha, "support": sums.total_mean("support")}
        return {**numbers, "unreachable": int(sums["unreachable"])}


class Accuracy(ModelMeasure):
    """How often an encoder alone predicts the right class of a text, or the right masked word."""

    name, about = "accuracy", "Only for a model that is an encoder alone."
    numbers: ClassVar = {"share": number_schema("The share of targets that the model ranks first.")}
    columns = (("Accuracy", "percent_tenths", "share"),)

    def is_of(self, model: Any) -> bool:
        return tuple(model.attentions) == (ENCODER_SELF,)

    def update(self, predictions: Predictions, sums: Sums) -> None:
        is_right = predictions.log_probs.argmax(dim=-1) == predictions.target
        sums.add("right", is_right[predictions.counts].sum())
        sums.add("right/count", predictions.counts.sum())

    def result(self, model: Any, sums: Sums) -> Fields:
        return {"share": sums.total_mean("right")}


MODEL_MEASURES: tuple[ModelMeasure, ...] = (Copying(), SparseOutput(), Accuracy())
