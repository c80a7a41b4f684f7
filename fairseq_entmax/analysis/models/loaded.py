"""Load the models to analyse from checkpoints."""

from __future__ import annotations

import itertools
import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fairseq_entmax.analysis.data.data_types import check_model, type_of_task
from fairseq_entmax.analysis.data.loading import device_of
from fairseq_entmax.checkpoints import updates_of
from fairseq_entmax.error_messages import reason
from fairseq_entmax.models.checkpoint_model import read_model


@dataclass(frozen=True)
class LoadedModel:
    """A checkpoint's model in evaluation mode; stock ``transformer`` becomes ours with softmax."""

    name: str  # tells it apart from other models
    path: str
    architecture: str  # as the checkpoint names it
    model: Any
    updates: int | None  # of its training; None if the file does not say


def load_models(
    args: Namespace, task: Any, names: Sequence[str] | None = None
) -> list[LoadedModel]:
    """Load the models of ``--path``, on the device and in the precision that the options choose."""
    paths = args.path.split(os.pathsep)
    if names is not None and not (len(names) == len({*names} - {""}) == len(paths)):
        raise ValueError(
            f"--names got {','.join(names)!r}: give {len(paths)} different names separated "
            f"by commas, one for each checkpoint of --path"
        )
    loaded = [load_model(path, task) for path in paths]
    device = device_of(args)
    for one in loaded:
        if args.fp16 or args.bf16:
            one.model.to(torch.float16 if args.fp16 else torch.bfloat16)
        one.model.to(device)
    if not names:
        mappings = (one.model.attention_options.specs.values() for one in loaded)
        texts = ["+".join(sorted({str(spec) for row in rows for spec in row})) for rows in mappings]
        names = _names([one.path for one in loaded], texts)
    return [replace(one, name=name) for one, name in zip(loaded, names, strict=True)]


def load_model(path: str, task: Any) -> LoadedModel:
    """Load a checkpoint's model on the CPU, in evaluation mode.

    Args:
        path: a checkpoint of a model of this package, or of fairseq's ``transformer`` or
            ``transformer_lm``, which becomes a model of this package with softmax.
        task: fairseq's task, for its dictionaries.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the model is of another kind than the task's, or does not fit the task's
            dictionaries or languages.
        UnsafeCheckpointError: the file holds something that could run code.
    """
    checkpoint = read_model(path)
    state = checkpoint.state
    data_type, copy = type_of_task(task), checkpoint.options.copy
    check_model(checkpoint.model_class, checkpoint.architecture, path, data_type)
    data_type.check_fit(state, path, task, 0 if copy is None else copy.source_position_markers)
    try:
        model = data_type.build_model(checkpoint, task)
        model.load_state_dict(state["model"], strict=True)
    except Exception as error:  # of any kind, from settings or weights that do not fit
        raise ValueError(f"{path} does not hold the model it names: {reason(error)}") from error
    model.eval().requires_grad_(False)
    updates = updates_of(state)
    return LoadedModel(os.path.basename(path), path, checkpoint.architecture, model, updates)


def _names(paths: list[str], mappings: list[str]) -> list[str]:
    """Return the mappings if they tell the models apart; else the part of the paths that does."""
    if len(set(mappings)) == len(mappings):
        return mappings
    parts = [os.path.abspath(path).split(os.sep)[::-1] for path in paths]
    for column in itertools.zip_longest(*parts, fillvalue=""):
        if len(set(column)) == len(column):
            return [name.removesuffix(".pt") for name in column]
    if len(set(paths)) < len(paths):
        raise ValueError(f"--path got {os.pathsep.join(paths)!r}, the same checkpoint twice")
    return paths
