"""The types of data that models are analysed on, and the one place where they differ."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.data.data_types.base import DataType as DataType
from fairseq_entmax.analysis.data.data_types.encoder_text import EncoderText as EncoderText
from fairseq_entmax.analysis.data.data_types.encoder_text import LabelledText, MaskedText
from fairseq_entmax.analysis.data.data_types.language_model import LanguageModel
from fairseq_entmax.analysis.data.data_types.seq2seq import Seq2Seq

# The last takes every model and task that is of no other
DATA_TYPES: tuple[DataType, ...] = (LabelledText(), LanguageModel(), MaskedText(), Seq2Seq())


def type_named(task: str) -> DataType:
    """The type of a task's name."""
    for kind in DATA_TYPES:
        if task in kind.tasks:
            return kind
    known = ", and ".join(" and ".join(kind.tasks) for kind in reversed(DATA_TYPES))
    raise ValueError(f"--task got {task!r}: only models of the tasks {known} can be analysed")


def type_of_task(task: Any) -> DataType:
    """The type of the data of a task of fairseq's."""
    return next((kind for kind in DATA_TYPES if kind.has_task(task)), DATA_TYPES[-1])


def type_of_model(model: Any) -> DataType:
    """The type of data that a model, or its class, is for: by the attentions it has."""
    return next((kind for kind in DATA_TYPES if kind.has_model(model)), DATA_TYPES[-1])


def check_model(model_class: Any, architecture: str, path: str, kind: DataType) -> None:
    """Refuse a checkpoint of a model for another type of data."""
    model_kind = type_of_model(model_class)
    if model_kind.attentions != kind.attentions:
        raise ValueError(
            f"{path} has the architecture {architecture}, of {model_kind.models}, and the "
            f"data is {kind.data}: give --task {model_kind.tasks[0]} and data for it, or another model"
        )


def check_folder(folder: str, kind: DataType, task: str) -> None:
    """Refuse a folder with data of another type."""
    if kind.is_in(folder):
        return
    for other in DATA_TYPES:
        if other is not kind and other.is_in(folder):
            raise ValueError(
                f"--task {task} is for {kind.data}, and {folder} has {other.data}: give --task "
                f"{other.tasks[0]}, or other data"
            )
