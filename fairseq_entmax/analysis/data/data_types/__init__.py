"""The types of data that models are analysed on. All their differences are in this package."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.data.data_types.base import DataType as DataType
from fairseq_entmax.analysis.data.data_types.encoder_text import EncoderText as EncoderText
from fairseq_entmax.analysis.data.data_types.encoder_text import LabelledText, MaskedText
from fairseq_entmax.analysis.data.data_types.language_model import LanguageModel
from fairseq_entmax.analysis.data.data_types.seq2seq import Seq2Seq

# The last type takes every model and task that no other type takes
DATA_TYPES: tuple[DataType, ...] = (LabelledText(), LanguageModel(), MaskedText(), Seq2Seq())


def type_named(task: str) -> DataType:
    for data_type in DATA_TYPES:
        if task in data_type.tasks:
            return data_type
    known = ", ".join(", ".join(one.tasks) for one in reversed(DATA_TYPES))
    raise ValueError(f"--task got {task!r}: only models of the tasks {known} can be analysed")


def type_of_task(task: Any) -> DataType:
    return next((one for one in DATA_TYPES if isinstance(task, one.task_class)), DATA_TYPES[-1])


def type_of_model(model: Any) -> DataType:
    """Return the type of data that a model, or its class, is for; its attentions tell."""
    return next((one for one in DATA_TYPES if one.has_model(model)), DATA_TYPES[-1])


def check_model(model_class: Any, architecture: str, path: str, data_type: DataType) -> None:
    """Refuse a checkpoint whose model is for another type of data."""
    model_type = type_of_model(model_class)
    if model_type.attentions != data_type.attentions:
        raise ValueError(
            f"{path} has the architecture {architecture}, of {model_type.models}, but the data is "
            f"{data_type.data}: give --task {model_type.tasks[0]} and data for it, or another model"
        )


def check_folder(folder: str, data_type: DataType, task: str) -> None:
    """Refuse a folder with data of another type."""
    if data_type.is_in(folder):
        return
    for other in DATA_TYPES:
        if other is not data_type and other.is_in(folder):
            raise ValueError(
                f"--task {task} is for {data_type.data}, but {folder} has {other.data}: give "
                f"--task {other.tasks[0]}, or other data"
            )
