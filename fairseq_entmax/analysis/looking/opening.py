"""From a checkpoint, or a model in a notebook, to a session with it."""

from __future__ import annotations

import argparse
import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention

from fairseq_entmax.analysis import kinds, loading
from fairseq_entmax.analysis.arguments import add_analyze_options
from fairseq_entmax.analysis.kinds.base import groups_of
from fairseq_entmax.analysis.looking.arguments import DESCRIPTION
from fairseq_entmax.analysis.looking.segmentation import Segmentation, built
from fairseq_entmax.analysis.looking.session import Session
from fairseq_entmax.analysis.models import LoadedModel, load_models
from fairseq_entmax.models.saved import SavedModel, read_model
from fairseq_entmax.modules import MultiheadAttention

# Folders above a checkpoint in which its data may lie: OUTPUT/runs/NAME/checkpoints
_ABOVE = 4
_IN_MEMORY = "(in memory)"


def fairseq_parser() -> Any:
    """fairseq's options on data, subwords, search and devices, and defaults of an analysis."""
    parser = loading.data_parser(DESCRIPTION, generation=True)
    parser.prog = "fairseq-entmax look"
    parser.usage = 'fairseq-entmax look CHECKPOINT --text "…" [options]'
    parser.allow_abbrev = False
    add_analyze_options(parser)
    return parser


def of_checkpoint(
    path: str, data: str | None = None, options: Sequence[str] = (), lower: bool | None = None
) -> Session:
    """A session with the model of a checkpoint.

    Args:
        path: the file.
        data: the folder with the dictionaries; None takes that of the training.
        options: further options of fairseq, as words of a command.
        lower: whether texts are lower-cased; None goes by the dictionaries.

    Raises:
        FileNotFoundError, ValueError, UnsafeCheckpointError: there is no such model or no data, or
            something does not fit; ``path`` names several models.
    """
    if os.pathsep in path and not os.path.exists(path):
        raise ValueError(
            f"CHECKPOINT got {path!r}: look shows the attention of one model, not of several "
            f"together: give one of them"
        )
    _import_user_dir(options)
    saved = read_model(path)
    settings = next(iter(groups_of(saved.state)), {})
    task = _task_of(saved, settings)
    folder, note = _data_of(path, data, settings, task)
    words = [folder, *options, "--path", path]
    if "--task" not in {word.partition("=")[0] for word in options}:
        words += ["--task", task]
    given = {word.partition("=")[0] for word in options}
    for name in ("source_lang", "target_lang"):
        option = f"--{name.replace('_', '-')}"
        if settings.get(name) and option not in given and task != "language_modeling":
            words += [option, str(settings[name])]
    args = loading.parse(fairseq_parser(), words)
    return _session(args, None, None, [note] if note else [], lower=lower)


def of_model(
    model: Any,
    task: Any = None,
    data: str | None = None,
    options: Sequence[str] = (),
    lower: bool | None = None,
) -> Session:
    """A session with a model in memory.

    Args:
        model: the path of a checkpoint; what ``load_model`` gave, or ``from_pretrained``; or a
            model itself, with its task.
        task: fairseq's; None takes that of what ``from_pretrained`` gave, or of the training.
        data: the folder with the dictionaries, where the task is not at hand.
        options: further options of fairseq.
        lower: as for :func:`of_checkpoint`.

    Raises:
        ValueError: it is an ensemble, a stock model, or a model without its task; as
            :func:`of_checkpoint`.
    """
    if isinstance(model, str | os.PathLike):
        return of_checkpoint(os.fspath(model), data, options, lower)
    if isinstance(model, LoadedModel) and task is None:
        return of_checkpoint(model.path, data, options, lower)
    models = getattr(model, "models", None)
    if models is not None and len(models) != 1:
        raise ValueError(
            f"look shows the attention of one model, not of {len(models)} together: give one of "
            f"them"
        )
    network = models[0] if models is not None else getattr(model, "model", model)
    own_task = getattr(model, "task", None) if task is None else task
    if own_task is None:
        raise ValueError(
            "look needs the task of a model, for its dictionaries: give task=load_task(DATA), or "
            "the checkpoint's path in place of the model"
        )
    modules = list(network.modules())
    if not any(isinstance(one, MultiheadAttention) for one in modules):
        is_stock = any(isinstance(one, FairseqMultiheadAttention) for one in modules)
        remedy = ": give the path of its checkpoint, which is read with softmax" * is_stock
        raise ValueError(f"{type(network).__name__} has no attention to look at{remedy}")
    kind = kinds.kind_of_task(own_task)
    words = [str(kind.options_of(own_task).data), *options, "--task", kind.tasks[0]]
    args = loading.options.parse_args_and_arch(fairseq_parser(), words)
    if isinstance(model, LoadedModel):
        loaded = model
    else:
        cfg = getattr(getattr(model, "cfg", None), "model", None)
        architecture = str(getattr(cfg, "arch", None) or getattr(cfg, "_name", None))
        loaded = LoadedModel(
            type(network).__name__ if architecture == "None" else architecture,
            os.path.join(_IN_MEMORY, "model"),
            architecture if architecture != "None" else type(network).__name__,
            network,
            None,
        )
    hub = model if models is not None else None
    return _session(args, own_task, loaded, [], hub, lower)


def _session(
    args: Namespace,
    task: Any,
    loaded: LoadedModel | None,
    notes: list[str],
    hub: Any = None,
    lower: bool | None = None,
) -> Session:
    """Put together what was found out.

    Args:
        task, loaded: None loads what the options name.
        hub: of fairseq's interface, which cuts texts already; None for none.
        lower: as for :func:`of_checkpoint`.
    """
    task = loading.setup_task(args) if task is None else task
    if loaded is None:
        (loaded,) = load_models(args, task)
    tokenizer, bpe = (getattr(hub, name, None) for name in ("tokenizer", "bpe"))
    if tokenizer is None:
        tokenizer = built(args, args.tokenizer)
    if bpe is None:
        bpe = built(args, args.bpe)
    kind = kinds.kind_of_task(task)
    data = str(kind.options_of(task).data)
    folder = os.path.abspath(data) if os.path.isdir(data) else None
    languages = [
        getattr(kind.options_of(task), name, None) for name in ("source_lang", "target_lang")
    ]
    source = Segmentation(task.source_dictionary, tokenizer, bpe, folder, languages[0], lower)
    target = source
    if kind.has_search:
        own = tokenizer
        if (
            args.tokenizer is not None and hub is None
        ):  # that of Moses goes by the source's language
            own = built(Namespace(**{**vars(args), "source_lang": languages[1]}), args.tokenizer)
        target = Segmentation(task.target_dictionary, own, bpe, folder, languages[1], lower)
    tokenizer = target.tokenizer if tokenizer is None else tokenizer
    detokenize = None if tokenizer is None else tokenizer.decode
    return Session(args, task, loaded, source, target, detokenize, notes)


def _import_user_dir(options: Sequence[str]) -> None:
    """What registers mappings and models, before a checkpoint of one is read.

    Raises:
        ValueError: there is no such folder.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--user-dir")
    own, _ = parser.parse_known_args(list(options))
    if own.user_dir is not None:
        if not os.path.isdir(own.user_dir):
            raise ValueError(f"--user-dir: there is no folder {own.user_dir}")
        utils.import_user_module(own)


def _task_of(saved: SavedModel, settings: dict[str, Any]) -> str:
    """The name of the task: as it was trained, where models of it can be looked at."""
    own = kinds.kind_of_model(saved.model_class)
    name = settings.get("_name") or settings.get("task")
    return str(name) if name in own.tasks else own.tasks[0]


def _data_of(path: str, data: str | None, settings: dict[str, Any], task: str) -> tuple[str, str]:
    """The folder with the dictionaries, and what is to be said of it.

    Raises:
        ValueError: there is none.
    """
    if data is not None:
        if not os.path.isdir(data):
            raise ValueError(f"--data got {data!r}: there is no such folder")
        return data, ""
    trained = str(settings.get("data") or "").split(os.pathsep)[0]
    if trained and os.path.isdir(trained):
        return trained, ""
    for above in list(Path(os.path.abspath(path)).parents)[:_ABOVE]:
        folder = above / "data-bin"
        if any(folder.glob("dict*.txt")) or (folder / "input0" / "dict.txt").is_file():
            return str(
                folder
            ), f"data: {folder}, as {trained or 'that of the training'} is not there"
    raise ValueError(
        f"{path} was trained on the data in {trained or 'a folder it does not name'}, which is not "
        f"there: give --data DATA-BIN, the folder with its dictionaries"
    )
