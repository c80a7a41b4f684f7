"""The kinds of data that models are analysed on, and the one place where they differ."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.data.data_types.base import Kind as Kind
from fairseq_entmax.analysis.data.data_types.labelled import Labelled
from fairseq_entmax.analysis.data.data_types.pairs import Pairs
from fairseq_entmax.analysis.data.data_types.text import Text

# The last takes every model and task that is of no other
KINDS: tuple[Kind, ...] = (Labelled(), Text(), Pairs())


def kind_named(task: str) -> Kind:
    """The kind of a task's name."""
    for kind in KINDS:
        if task in kind.tasks:
            return kind
    known = ", and ".join(" and ".join(kind.tasks) for kind in reversed(KINDS))
    raise ValueError(f"--task got {task!r}: only models of the tasks {known} can be analysed")


def kind_of_task(task: Any) -> Kind:
    """The kind of the data of a task of fairseq's."""
    return next((kind for kind in KINDS if kind.has_task(task)), KINDS[-1])


def kind_of_model(model: Any) -> Kind:
    """The kind of data that a model, or its class, is for: by the attentions it has."""
    attentions = frozenset(getattr(model, "attentions", ()))
    return next((kind for kind in KINDS if attentions == kind.attentions), KINDS[-1])


def check_model(model_class: Any, architecture: str, path: str, kind: Kind) -> None:
    """Refuse a checkpoint of a model for another kind of data."""
    model_kind = kind_of_model(model_class)
    if model_kind is not kind:
        raise ValueError(
            f"{path} has the architecture {architecture}, of {model_kind.models}, and the "
            f"data is {kind.data}: give --task {model_kind.tasks[0]} and data for it, or another model"
        )


def check_folder(folder: str, kind: Kind, task: str) -> None:
    """Refuse a folder with data of another kind."""
    if kind.is_in(folder):
        return
    for other in KINDS:
        if other is not kind and other.is_in(folder):
            raise ValueError(
                f"--task {task} is for {kind.data}, and {folder} has {other.data}: give --task "
                f"{other.tasks[0]}, or other data"
            )
