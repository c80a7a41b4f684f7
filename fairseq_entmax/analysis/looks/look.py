"""``look`` in Python: the attention of a model on the user's own sentences."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

import torch
from fairseq import utils
from torch import Tensor

from fairseq_entmax.analysis.data import data_types, loading
from fairseq_entmax.analysis.data.data_types.base import groups_of
from fairseq_entmax.analysis.looks import page
from fairseq_entmax.analysis.looks.sentence import Item, Sentence
from fairseq_entmax.analysis.looks.session import Session, fairseq_parser
from fairseq_entmax.analysis.looks.terminal import shown
from fairseq_entmax.analysis.models.loaded import LoadedModel, load_models
from fairseq_entmax.analysis.models.recorder import record_pass, unwrapped
from fairseq_entmax.analysis.report.payload import joined_text
from fairseq_entmax.attention import attention_modules
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.models.checkpoint_model import read_model


class Look(Sentence):
    """The attention of every head on one sentence; ``str`` shows the strongest links."""

    def write_report(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the report's page on this sentence as an HTML file, whole or not at all."""
        page.write(self._session, [self], path, overwrite)

    def __str__(self) -> str:
        return shown(self)


def look(
    model: Any,
    text: str,
    translation: str | None = None,
    *,
    task: Any = None,
    data: str | None = None,
    lower: bool = False,
    **options: Any,
) -> Look:
    """Return the attention of every head on one sentence.

        print(look(model, "En el principio crió Dios los cielos y la tierra."))

    Args:
        model: a model of this package: the result of ``from_pretrained`` or ``load_model``, the
            path of a checkpoint, or the model itself with its task. For fairseq's own
            ``transformer``, the path or the result of ``load_model``.
        text: a sentence as one would write it. It is segmented into subwords as ``from_pretrained``
            was told, as ``options`` say, or by the subword model found beside the data.
        translation: the translation to use, by teacher forcing; None lets the model translate.
        task: the fairseq task; None takes that of the model, or of its checkpoint.
        data: the folder with the dictionaries, if that of the training does not exist.
        lower: lower-case the text, as the training text was.
        **options: options of fairseq, such as ``beam=1``, or ``bpe="sentencepiece"`` with
            ``sentencepiece_model="bpe.model"``; True for an option without a value.

    Raises:
        ValueError: the text is empty or too long, or its segmentation is not known; the model is
            an ensemble, or has no attention that can be recorded; an option is wrong.
        FileNotFoundError, UnsafeCheckpointError: the checkpoint cannot be read.
    """
    words: list[str] = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, str(value)]
    if isinstance(model, LoadedModel) and task is None:
        model = model.path
    if isinstance(model, str | os.PathLike):
        session = of_checkpoint(os.fspath(model), data, words, lower)
    else:
        session = of_model(model, task, words, lower)
    return session.look([text], None if translation is None else [translation])[0]


def of_checkpoint(
    path: str, data: str | None = None, options: Sequence[str] = (), lower: bool = False
) -> LookSession:
    """Open a session with the model of a checkpoint; arguments as for :func:`look`."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("user-dir", "task", "source-lang", "target-lang"):
        early.add_argument(f"--{name}")
    known, _ = early.parse_known_args(list(options))
    if known.user_dir is not None and not os.path.isdir(known.user_dir):
        raise ValueError(f"--user-dir: there is no folder {known.user_dir}")
    utils.import_user_module(known)  # registers mappings and models
    checkpoint = read_model(path)
    trained = next(iter(groups_of(checkpoint.state)), {})
    if data is None:
        data = str(trained.get("data") or "").split(os.pathsep)[0]
        if not os.path.isdir(data):
            raise ValueError(
                f"{path} was trained on data in {data or 'a folder that it does not name'}, which "
                f"was not found: give --data DATA-BIN, the folder with its dictionaries"
            )
    task = known.task or trained.get("_name") or trained.get("task")
    fitting = [one for one in data_types.DATA_TYPES if task in one.tasks]
    data_type = next(iter(fitting), data_types.type_of_model(checkpoint.model_class))
    words = [data, *options, "--path", path]
    words += [] if known.task else ["--task", str(task) if fitting else data_type.tasks[0]]
    for name in ("source_lang", "target_lang") if data_type.has_search else ():
        if trained.get(name) and getattr(known, name) is None:
            words += [f"--{name.replace('_', '-')}", str(trained[name])]
    args = loading.parse(fairseq_parser(), words)
    loaded_task = loading.setup_task(args)
    (loaded,) = load_models(args, loaded_task)
    return LookSession(args, loaded_task, loaded, lower)


def of_model(model: Any, task: Any, options: Sequence[str], lower: bool) -> LookSession:
    """Open a session with a model in memory; arguments as for :func:`look`."""
    task = getattr(model, "task", None) if task is None else task
    if task is None:
        raise ValueError(
            "look needs the model's task, for its dictionaries: give task=load_task(DATA), or the "
            "checkpoint's path instead of the model"
        )
    data_type = data_types.type_of_task(task)
    words = [str(data_type.options_of(task).data), *options, "--task", data_type.tasks[0]]
    args = loading.options.parse_args_and_arch(fairseq_parser(), words)
    loaded = model
    if not isinstance(model, LoadedModel):
        network = unwrapped(model)
        name = type(network).__name__
        settings = getattr(getattr(model, "cfg", None), "model", None)
        architecture = str(getattr(settings, "_name", None) or name)
        place = os.path.join("(in memory)", "model")
        loaded = LoadedModel(name, place, architecture, network, None)
    return LookSession(args, task, loaded, lower, model)


class LookSession(Session):
    """A session that returns the attention on sentences."""

    def look(
        self, sentences: Sequence[str], translations: Sequence[str] | None = None
    ) -> list[Look]:
        """Return the attention on sentences; without translations, the model translates them."""
        if translations is not None and not self.data_type.has_search:
            raise ValueError(
                f"--translation got {translations[0]!r}, but {self.data_type.models} do not "
                f"translate: leave it out"
            )
        targets: Sequence[str | None] = translations or [None] * len(sentences)
        with self.evaluated():
            return [self._one(text, other) for text, other in zip(sentences, targets, strict=True)]

    def _one(self, text: str, translation: str | None) -> Look:
        source = self.sides[0](text)
        if not self.data_type.has_search:
            return self._look(text, Item(source.tokens), source.notes)
        self.check_length(source.tokens, 0)
        if translation is None:
            tokens, numbers = self.generated(source.tokens)
            pieces = [self.task.target_dictionary[token] for token in tokens[:-1].tolist()]
            joined = joined_text([source.markers.get(piece, piece) for piece in pieces])
            output = joined if self.tokenizer is None else self.tokenizer.decode(joined)
            search = f"beam search of {self.args.beam}" if self.args.beam > 1 else "greedy search"
            notes = [f"translated by {'sampling' if self.args.sampling else search}", *source.notes]
            return self._look(text, Item(source.tokens, tokens, generated=numbers), notes, output)
        # A word that has a marker in the source gets the same marker here
        target = self.sides[1](translation, {old: new for new, old in source.markers.items()})
        self.check_length(target.tokens, 1)
        item = Item(source.tokens, target.tokens)
        return self._look(text, item, source.notes + target.notes, translation)

    def _look(self, text: str, item: Item, notes: list[str], output: str | None = None) -> Look:
        """Run the model over a sentence once and collect its attention."""
        sample = self.sample(self.dataset([item]))
        self.check_length(sample["net_input"]["src_tokens"][0], 0)  # some data begin with <s>
        attention, (logits, _) = record_pass(self.loaded.model, sample)
        if isinstance(self.data_type, data_types.LabelledText):
            notes = [f"classified as {self.data_type.predicted_class(self.task, logits)}", *notes]
        tables = self.data_type.tables(self.task, self.device)
        batch = tables.batch(sample)
        layers: dict[str, list[Tensor]] = {}
        gates: dict[str, list[list[float]]] = {}
        modules = list(attention_modules(self.loaded.model))
        for name, number, module in sorted(modules, key=lambda m: (ATTENTIONS.index(m[0]), m[1])):
            weights = attention.get(name, {}).get(number)
            if weights is None:  # a layer without heads
                weights = torch.zeros(1, 0, *(side.tokens.size(1) for side in batch.sides(name)))
            heads, gate = weights[0].float().cpu(), module.gate
            if not heads.isfinite().all():
                raise ValueError(
                    f"{self.loaded.path} gives non-finite numbers: training or --fp16 failed"
                )
            layers.setdefault(name, []).append(heads)
            values = [1.0] * len(heads) if gate is None else gate.at_evaluation().tolist()
            gates.setdefault(name, []).append(values)
        tokens = self.data_type.tokens(self.task, sample)
        read, target = tokens["queries"], tokens["targets"]
        words = self.task.target_dictionary
        marks = torch.tensor([words.bos(), words.eos(), words.pad()], device=self.device)
        numbers = [batch.source.words, None, None]
        if target:
            special = torch.isin(sample["target"], marks)
            numbers[1:] = batch.target.words, tables.target.words(sample["target"], special)
        return Look(
            text,
            output,
            item.generated is not None,
            tokens["source"] or read,
            read,
            target,
            layers,
            gates,
            list(dict.fromkeys(notes)),
            _word_numbers=[[] if one is None else one[0].tolist() for one in numbers],
            _item=item,
            _session=self,
        )
