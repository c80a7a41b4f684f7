"""What a type of data has to say of itself."""

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
    """One type of data: how it is read, how a model is run on it, and what is said of it."""

    name: ClassVar[str]  # as kind of the document's data has it
    tasks: ClassVar[tuple[str, ...]]  # of fairseq with such data; the first is the one to advise
    models: ClassVar[str]  # what they are called in errors, and the data
    data: ClassVar[str]
    attentions: ClassVar[frozenset[str]]  # of its models, by which they are told from others
    task_class: ClassVar[type] = FairseqTask
    left_out: ClassVar[frozenset[str]] = frozenset()  # measures that mean nothing there
    no_parses: ClassVar[str] = ""  # why --conllu has no part there; nothing where it has
    has_search: ClassVar[bool] = False  # whether its models write one text for another

    def is_in(self, folder: str) -> bool:
        """Whether a folder looks as if it had data of this type."""
        raise NotImplementedError

    def has_task(self, task: Any) -> bool:
        """Whether a task of fairseq's is of this type."""
        return isinstance(task, self.task_class)

    def has_model(self, model: Any) -> bool:
        """Whether a model, or its class, is for data of this type."""
        return frozenset(getattr(model, "attentions", ())) == self.attentions

    def options_of(self, task: Any) -> Any:
        """The options of a task of fairseq's; those for language models have them as arguments."""
        return task.cfg or task.args

    def complete(self, args: Namespace, named: Collection[str]) -> None:
        """Take options of the task, but those given, from the first checkpoint into ``args``."""

    def check_options(self, args: Namespace) -> None:
        """Refuse options of ``analyze`` that have no part in data of this type."""
        if args.of == GENERATED and not self.has_search:
            raise ValueError(
                f"--of got {args.of!r}: {self.models} write no text for another: leave it out"
            )
        if args.conllu is not None and self.no_parses:
            raise ValueError(f"--conllu got {args.conllu!r}: {self.no_parses}: leave it out")

    def setup_task(self, args: Namespace, config: Any) -> Any:
        """fairseq's task, of parsed options, and of the same in fairseq's nested form."""
        return tasks.setup_task(config)

    def check_dataset(self, task: Any, dataset: Any, subset: str) -> None:
        """Refuse a data set that fairseq has read, where it has no targets."""

    def check_fit(self, state: dict[str, Any], path: str, task: Any, markers: int) -> None:
        """Refuse a checkpoint of other data; its dictionary ends with markers without embeddings."""
        raise NotImplementedError

    def build_model(self, checkpoint: Any, task: Any) -> Any:
        """The model of a ``CheckpointModel``, without its weights."""
        return checkpoint.model_class.build_model(checkpoint.args, task)

    def tables(self, task: Any, device: Any, annotations: Annotations | None = None) -> Tables:
        """What makes the sentences of a batch of its samples."""
        raise NotImplementedError

    def for_map(self, sample: Any) -> Any:
        """The part of a batch of one sentence that its map is of."""
        return sample

    def length_shown(self, lengths: Tensor) -> Tensor:
        """The lengths of what maps show of sentences, ``(batch,)``."""
        return lengths

    def tokens(self, task: Any, sample: Any) -> dict[str, list[str]]:
        """``source``, ``queries`` and ``targets`` of the map of a batch of one sentence."""
        raise NotImplementedError

    def counted(self, task: Any, numbers: dict[str, int]) -> dict[str, Any]:
        """What ``data`` of the document says beside the path."""
        raise NotImplementedError

    def scored(self, task: Any, counts: dict[str, int]) -> dict[str, Any]:
        """What ``data`` of an ablation says beside the path."""
        return {"kind": self.name, "source_lang": None, "target_lang": None, **counts}

    def item_text(self, item: Any) -> str:
        """What one item of a data set is, for a hash of the data."""
        return f"{item['source'].tolist()}:{item['target'].tolist()}"

    def run(self, model: Any, sample: Any) -> tuple[Tensor, Any]:
        """One pass over a batch; logits and what else the model gives."""
        output: tuple[Tensor, Any] = model(**sample["net_input"])[:2]
        return output

    def targets(self, model: Any, sample: Any) -> tuple[Tensor, Tensor]:
        """What a model should have said, and where that counts: padding does not."""
        raise NotImplementedError

    def log_probs(self, model: Any, sample: Any, output: tuple[Tensor, Any]) -> Tensor:
        """The logarithms of the probabilities of what can be said, beside each target."""
        logs: Tensor = model.get_normalized_probs(output, True, sample)
        return logs

    def alone(self, model: Any, sample: Any) -> Iterator[tuple[dict[str, Tensor], int, int]]:
        """The sentences of a batch without padding, each with its source tokens and decoder's queries."""
        raise NotImplementedError


class TextAlone(DataType):
    """A text that is source and target."""

    options: ClassVar[tuple[str, ...]]  # of the task, those of the checkpoint, if not given
    stack: ClassVar[str]  # of the model, that reads the text
    not_counted: ClassVar[tuple[str, ...]]  # what the document says of pairs of texts alone

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
    """Options of the task as a checkpoint was trained with them; those that it has."""
    found: dict[str, Any] = {}
    for settings in groups_of(load_checkpoint(path)):
        for name in names:
            # A setting that stands for another one, by ${…}, is looked for in that group
            value = settings.get(name)
            if name not in found and value is not None and not str(value).startswith("${"):
                found[name] = value
    return found


def groups_of(state: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings of a checkpoint: of the task first; or all, as older ones have them."""
    cfg = state.get("cfg")
    groups = [cfg.get(name) for name in ("task", "model", "criterion")] if cfg else []
    groups.append(state.get("args"))
    return [vars(one) if isinstance(one, Namespace) else one for one in groups if one is not None]


def check_vocabulary(
    state: dict[str, Any], path: str, side: str, dictionary: Any, markers: int = 0
) -> None:
    """Refuse a checkpoint whose embedding is of another dictionary."""
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
            f"{path} has {sum(rows) + markers} {side} tokens, and the data's dictionary "
            f"has {len(dictionary)}: give the data that it was trained with"
        )
