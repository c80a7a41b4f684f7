"""The interface of a type of data."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

from fairseq import tasks
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_entmax.analysis.data import GENERATED
from fairseq_entmax.analysis.data.annotations.annotated import Annotations
from fairseq_entmax.analysis.data.batch import Tables, TextTables
from fairseq_entmax.checkpoints import load_checkpoint


class DataType:
    """One type of data: how it is read, how a model runs on it, and how documents describe it."""

    name: ClassVar[str]  # ``kind`` in the document's ``data``
    tasks: ClassVar[tuple[str, ...]]  # fairseq's tasks for it; errors recommend the first
    models: ClassVar[str]  # what errors call its models, and the data
    data: ClassVar[str]
    attentions: ClassVar[frozenset[str]]  # of its models; they tell the types apart
    task_class: ClassVar[type] = FairseqTask
    left_out: ClassVar[frozenset[str]] = frozenset()  # measures without meaning for it
    no_parses: ClassVar[str] = ""  # why --conllu cannot be used; empty if it can
    has_search: ClassVar[bool] = False  # whether its models generate a text for a source

    def is_in(self, folder: str) -> bool:
        """Whether a folder seems to hold data of this type."""
        raise NotImplementedError

    def has_model(self, model: Any) -> bool:
        """Whether a model, or its class, is for data of this type."""
        return frozenset(getattr(model, "attentions", ())) == self.attentions

    def options_of(self, task: Any) -> Any:
        """Return a fairseq task's options; language modelling keeps them in ``args``."""
        return task.cfg or task.args

    def complete(self, args: Namespace, named: Collection[str]) -> None:
        """Copy task options, except those ``named``, from the first checkpoint to ``args``."""

    def check_options(self, args: Namespace) -> None:
        """Refuse options of ``analyze`` that do not apply to data of this type."""
        if args.of == GENERATED and not self.has_search:
            raise ValueError(
                f"--of got {args.of!r}: {self.models} neither translate nor summarise: leave it out"
            )
        if args.conllu is not None and self.no_parses:
            raise ValueError(f"--conllu got {args.conllu!r}: {self.no_parses}: leave it out")

    def setup_task(self, args: Namespace, config: Any) -> Any:
        """Set up fairseq's task from parsed options; ``config`` is their nested form."""
        return tasks.setup_task(config)

    def check_dataset(self, task: Any, dataset: Any, subset: str) -> None:
        """Refuse a loaded data set that lacks the targets it needs."""

    def check_fit(self, state: dict[str, Any], path: str, task: Any, markers: int) -> None:
        """Refuse a checkpoint of other data; the last ``markers`` symbols have no embedding."""
        raise NotImplementedError

    def build_model(self, checkpoint: Any, task: Any) -> Any:
        """Build the model of a ``CheckpointModel``, without its weights."""
        return checkpoint.model_class.build_model(checkpoint.args, task)

    def tables(self, task: Any, device: Any, annotations: Annotations | None = None) -> Tables:
        """Return the tables that turn fairseq's samples into batches."""
        raise NotImplementedError

    def for_map(self, sample: Any) -> Any:
        """Return the part of a one-sentence batch that its map shows."""
        return sample

    def length_shown(self, lengths: Tensor) -> Tensor:
        """Return the lengths of what maps show of sentences, ``(batch,)``."""
        return lengths

    def tokens(self, task: Any, sample: Any) -> dict[str, list[str]]:
        """Return ``source``, ``queries`` and ``targets`` of the map of a one-sentence batch."""
        raise NotImplementedError

    def counted(self, task: Any, numbers: dict[str, int]) -> dict[str, Any]:
        """Return the kind, the languages and the counts in ``data`` of the document."""
        raise NotImplementedError

    def scored(self, task: Any, counts: dict[str, int]) -> dict[str, Any]:
        """Return the kind, the languages and the counts in ``data`` of an ablation."""
        return {"kind": self.name, "source_lang": None, "target_lang": None, **counts}

    def item_text(self, item: Any) -> str:
        """Return an item of a data set as text, to hash the data."""
        return f"{item['source'].tolist()}:{item['target'].tolist()}"

    def run(self, model: Any, sample: Any) -> tuple[Tensor, Any]:
        """Run a model on a batch; return the logits and its other output."""
        output: tuple[Tensor, Any] = model(**sample["net_input"])[:2]
        return output

    def targets(self, model: Any, sample: Any) -> tuple[Tensor, Tensor]:
        """Return the targets, and which of them count: padding does not."""
        raise NotImplementedError

    def log_probs(self, model: Any, sample: Any, output: tuple[Tensor, Any]) -> Tensor:
        """Return the log probabilities of all tokens, or classes, for each target."""
        logs: Tensor = model.get_normalized_probs(output, True, sample)
        return logs

    def alone(self, model: Any, sample: Any) -> Iterator[tuple[dict[str, Tensor], int, int]]:
        """Yield each sentence without padding, with its numbers of source tokens and queries."""
        raise NotImplementedError


class TextAlone(DataType):
    """A text alone, which is both source and target."""

    options: ClassVar[tuple[str, ...]]  # of the task; by default the checkpoint's
    stack: ClassVar[str]  # the part of the model that reads the text
    not_counted: ClassVar[tuple[str, ...]]  # fields of the document that are null for it

    def is_in(self, folder: str) -> bool:
        return os.path.isfile(os.path.join(folder, "dict.txt"))

    def complete(self, args: Namespace, named: Collection[str]) -> None:
        missing = [name for name in self.options if name not in named]
        vars(args).update(trained_options(args.path.split(os.pathsep)[0], missing))

    def check_fit(self, state: dict[str, Any], path: str, task: Any, markers: int) -> None:
        check_vocabulary(state, path, self.stack, task.source_dictionary)

    def tables(self, task: Any, device: Any, annotations: Annotations | None = None) -> TextTables:
        dictionary = task.source_dictionary
        return TextTables(dictionary, device, {dictionary.bos()}, annotations)

    def counted(self, task: Any, numbers: dict[str, int]) -> dict[str, Any]:
        nothing = dict.fromkeys(("source_lang", "target_lang", *self.not_counted))
        return {"kind": self.name, **numbers, **nothing}


def trained_options(path: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of task options, of those ``names`` that a checkpoint has."""
    found: dict[str, Any] = {}
    for settings in groups_of(load_checkpoint(path)):
        for name in names:
            # ${…} refers to a setting of another group, where it is found
            value = settings.get(name)
            if name not in found and value is not None and not str(value).startswith("${"):
                found[name] = value
    return found


def groups_of(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a checkpoint's groups of settings, the task's first; older ones have one group."""
    cfg = state.get("cfg")
    groups = [cfg.get(name) for name in ("task", "model", "criterion")] if cfg else []
    groups.append(state.get("args"))
    return [vars(one) if isinstance(one, Namespace) else one for one in groups if one is not None]


def check_vocabulary(
    state: dict[str, Any], path: str, side: str, dictionary: Any, markers: int = 0
) -> None:
    """Refuse a checkpoint whose embedding does not have the dictionary's size."""
    prefix = f"{side}.embed_tokens."
    # One matrix, or one for each band of an adaptive input
    rows = [
        weight.size(0)
        for name, weight in state["model"].items()
        if name == f"{prefix}weight"
        or (name.startswith(f"{prefix}embeddings.") and name.endswith(".0.weight"))
    ]
    if rows and sum(rows) + markers != len(dictionary):
        raise ValueError(
            f"{path} has {sum(rows) + markers} {side} tokens, but the data's dictionary "
            f"has {len(dictionary)}: give the data that it was trained with"
        )
