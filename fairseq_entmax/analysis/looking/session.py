"""A model that is looked at on sentences of one's own, and ``look`` in Python."""

from __future__ import annotations

import argparse
import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from fairseq import data as fairseq_data
from fairseq import utils
from torch import Tensor

from fairseq_entmax.analysis import kinds, loading
from fairseq_entmax.analysis.arguments import GENERATED, add_analyze_options
from fairseq_entmax.analysis.generation import GeneratedDataset, check_options, search_options
from fairseq_entmax.analysis.importance.propagation import restored
from fairseq_entmax.analysis.kinds.base import groups_of
from fairseq_entmax.analysis.looking import USAGE
from fairseq_entmax.analysis.looking.segmentation import Segmentation, built
from fairseq_entmax.analysis.looking.sentence import Item, Look
from fairseq_entmax.analysis.models import LoadedModel, load_models
from fairseq_entmax.analysis.recorder import record_pass, unwrapped
from fairseq_entmax.analysis.report.payload import joined_text
from fairseq_entmax.analysis.sentences import on_device
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.models.saved import read_model
from fairseq_entmax.modules import attention_modules


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
    """The attention of every head on one sentence.

        print(look(model, "En el principio crió Dios los cielos y la tierra."))

    Args:
        model: a model of this package: what ``from_pretrained`` or ``load_model`` gave, the path
            of a checkpoint, or the model itself with its task. Of fairseq's own ``transformer``
            the path, or what ``load_model`` gave.
        text: as it would be written; it is cut into subwords as ``from_pretrained`` was told, or
            as ``options`` say, or by the model that lies by the data.
        translation: what the model is to have said of it; None lets it translate.
        task: fairseq's; None takes what comes with the model, or with its checkpoint.
        data: the folder with the dictionaries, for a checkpoint whose own is not there.
        lower: whether the text is lower-cased, as that of the training was.
        **options: of fairseq, such as ``beam=1``, ``bpe="sentencepiece"`` with
            ``sentencepiece_model="bpe.model"``; True for an option without a value.

    Raises:
        ValueError: the text is empty, too long, or nothing says how it is cut; the model is an
            ensemble, or has no attention that can be looked at; an option is wrong.
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


def fairseq_parser() -> Any:
    """fairseq's options on data, subwords, search and devices, and defaults of an analysis."""
    parser = loading.data_parser("")
    parser.prog, parser.usage = "fairseq-entmax look", USAGE
    parser.allow_abbrev = False
    add_analyze_options(parser)
    return parser


def of_checkpoint(
    path: str, data: str | None = None, options: Sequence[str] = (), lower: bool = False
) -> Session:
    """A session with the model of a checkpoint; arguments as for :func:`look`."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("user-dir", "task", "source-lang", "target-lang"):
        early.add_argument(f"--{name}")
    given, _ = early.parse_known_args(list(options))
    if given.user_dir is not None and not os.path.isdir(given.user_dir):
        raise ValueError(f"--user-dir: there is no folder {given.user_dir}")
    utils.import_user_module(given)  # registers mappings and models
    saved = read_model(path)
    trained = next(iter(groups_of(saved.state)), {})
    if data is None:
        data = str(trained.get("data") or "").split(os.pathsep)[0]
        if not os.path.isdir(data):
            raise ValueError(
                f"{path} was trained on the data in {data or 'a folder it does not name'}, which "
                f"is not there: give --data DATA-BIN, the folder with its dictionaries"
            )
    kind = kinds.kind_of_model(saved.model_class)
    task = given.task or trained.get("_name") or trained.get("task")
    words = [data, *options, "--path", path]
    words += [] if given.task else ["--task", task if task in kind.tasks else kind.tasks[0]]
    for name in ("source_lang", "target_lang") if kind.has_search else ():
        if trained.get(name) and getattr(given, name) is None:
            words += [f"--{name.replace('_', '-')}", str(trained[name])]
    args = loading.parse(fairseq_parser(), words)
    loaded_task = loading.setup_task(args)
    (loaded,) = load_models(args, loaded_task)
    return Session(args, loaded_task, loaded, lower)


def of_model(model: Any, task: Any, options: Sequence[str] = (), lower: bool = False) -> Session:
    """A session with a model in memory; arguments as for :func:`look`."""
    task = getattr(model, "task", None) if task is None else task
    if task is None:
        raise ValueError(
            "look needs the task of a model, for its dictionaries: give task=load_task(DATA), or "
            "the checkpoint's path in place of the model"
        )
    kind = kinds.kind_of_task(task)
    words = [str(kind.options_of(task).data), *options, "--task", kind.tasks[0]]
    args = loading.options.parse_args_and_arch(fairseq_parser(), words)
    loaded = model
    if not isinstance(model, LoadedModel):
        network = unwrapped(model)
        name = type(network).__name__
        settings = getattr(getattr(model, "cfg", None), "model", None)
        architecture = str(getattr(settings, "_name", None) or name)
        place = os.path.join("(in memory)", "model")
        loaded = LoadedModel(name, place, architecture, network, None)
    return Session(args, task, loaded, lower, model)


class Session:
    """A model with all that its sentences need; ``hub`` cuts texts, where it has what does."""

    def __init__(
        self, args: Namespace, task: Any, loaded: LoadedModel, lower: bool, hub: Any = None
    ) -> None:
        self.args, self.task, self.loaded = args, task, loaded
        self.kind = kinds.kind_of_task(task)
        if self.kind.name == "labelled":
            raise ValueError(
                "look is for models that translate and for language models: what a classifier "
                "reads, says and pools is in what its predict gives"
            )
        trained = self.kind.options_of(task)
        bpe = getattr(hub, "bpe", None) or built(args, "bpe")
        self._sides, self._tokenizer = [], None
        for side in ("source", "target") if self.kind.has_search else ("source",):
            language = getattr(trained, f"{side}_lang", None)
            # That of Moses goes by the source's language
            own = Namespace(**{**vars(args), "source_lang": language})
            self._tokenizer = getattr(hub, "tokenizer", None) or built(own, "tokenizer")
            cut = (getattr(task, f"{side}_dictionary"), self._tokenizer, bpe, str(trained.data))
            self._sides.append(Segmentation(*cut, language, lower))
        self._device = next(loaded.model.parameters()).device

    def look(
        self, sentences: Sequence[str], translations: Sequence[str] | None = None
    ) -> list[Look]:
        """Look at sentences as they would be written; without translations the model translates."""
        if translations is not None and not self.kind.has_search:
            raise ValueError(
                f"--translation got {translations[0]!r}, and {self.kind.models} write none: leave "
                f"it out"
            )
        given: Sequence[str | None] = translations or [None] * len(sentences)
        with self.evaluated():
            return [self._one(text, other) for text, other in zip(sentences, given, strict=True)]

    def _one(self, text: str, translation: str | None) -> Look:
        source = self._sides[0](text)
        self._check_length(source.tokens, 0)
        if not self.kind.has_search:
            return self._look(text, Item(source.tokens), source.notes)
        if translation is None:
            tokens, numbers = self._generated(source.tokens)
            pieces = [self.task.target_dictionary[token] for token in tokens[:-1].tolist()]
            joined = joined_text([source.markers.get(piece, piece) for piece in pieces])
            said = joined if self._tokenizer is None else self._tokenizer.decode(joined)
            search = f"beam search of {self.args.beam}" if self.args.beam > 1 else "greedy search"
            notes = [f"translated by {search}", *source.notes]
            return self._look(text, Item(source.tokens, tokens, generated=numbers), notes, said)
        # A word that the source has a marker for has that marker here, too
        target = self._sides[1](translation, {old: new for new, old in source.markers.items()})
        self._check_length(target.tokens, 1)
        item = Item(source.tokens, target.tokens)
        return self._look(text, item, source.notes + target.notes, translation)

    def _look(self, text: str, item: Item, notes: list[str], said: str | None = None) -> Look:
        """What one pass over a sentence gives."""
        sample = self._sample(self.dataset([item]))
        attention, _ = record_pass(self.loaded.model, sample)
        tables = self.kind.tables(self.task, self._device)
        batch = tables.batch(sample)
        layers: dict[str, list[Tensor]] = {}
        gates: dict[str, list[list[float]]] = {}
        modules = list(attention_modules(self.loaded.model))
        for name, number, module in sorted(modules, key=lambda m: (ATTENTIONS.index(m[0]), m[1])):
            own = attention.get(name, {}).get(number)
            if own is None:  # a layer without heads
                own = torch.zeros(1, 0, *(side.tokens.size(1) for side in batch.sides(name)))
            heads, gate = own[0].float().cpu(), module.gate
            layers.setdefault(name, []).append(heads)
            values = [1.0] * len(heads) if gate is None else gate.at_evaluation().tolist()
            gates.setdefault(name, []).append(values)
        tokens = self.kind.tokens(self.task, sample)
        read, target = tokens["queries"], tokens["targets"]
        words = self.task.target_dictionary
        marks = torch.tensor([words.bos(), words.eos(), words.pad()], device=self._device)
        said_words = tables.target.words(sample["target"], torch.isin(sample["target"], marks))
        numbers = [batch.source.words, batch.target.words, said_words]
        return Look(
            text,
            said,
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

    def dataset(self, items: Sequence[Item]) -> Any:
        """Sentences as a data set of fairseq, as if they had been prepared."""
        words, said = self.task.source_dictionary, self.task.target_dictionary
        sources = [item.source for item in items]
        sizes = numpy.array([len(one) for one in sources])
        if not self.kind.has_search:  # read from its beginning, each text a sample
            tokens = fairseq_data.ListDataset(sources, sizes), sizes, None, words.pad(), words.eos()
            how = {"break_mode": "eos", "include_targets": True}
            blocks = fairseq_data.TokenBlockDataset(*tokens, **how)
            how = {"targets": self.task.targets, "add_bos_token": self.task.args.add_bos_token}
            return fairseq_data.MonolingualDataset(blocks, blocks.sizes, words, said, **how)
        targets = [item.target for item in items if item.target is not None]
        target_sizes = numpy.array([len(one) for one in targets])
        return fairseq_data.LanguagePairDataset(
            *(sources, sizes, words, targets, target_sizes, said),
            left_pad_source=self.task.cfg.left_pad_source,
            left_pad_target=self.task.cfg.left_pad_target,
            shuffle=False,
        )

    def search(self) -> dict[str, Any]:
        """The search, as a document says it."""
        return search_options(loading.configuration(self.args).generation, self.task)

    def _sample(self, dataset: Any) -> Any:
        return on_device(dataset.collater([dataset[0]]), self._device)

    def _generated(self, source: Tensor) -> tuple[Tensor, dict[str, int]]:
        """What the model says of a text: the best hypothesis, ``(tokens,)``, and its numbers."""
        self.args.of = GENERATED
        check_options(self.args)
        end = torch.tensor([self.task.target_dictionary.eos()])
        dataset = self.dataset([Item(source, end)])
        config = loading.configuration(self.args)
        generated = GeneratedDataset(dataset, self.loaded.model, self.task, config)
        # Its seed is not to be that of a notebook from then on
        with torch.no_grad(), torch.random.fork_rng():
            sample = generated.generate(self._sample(dataset))
        if generated.numbers["empty"]:
            raise ValueError("the model says nothing of a text: give its --translation")
        return sample["target"][0].cpu(), dict(generated.numbers)

    def _check_length(self, tokens: Tensor, side: int) -> None:
        most = self.loaded.model.max_positions()
        most = most[side] if isinstance(most, tuple) else most
        if len(tokens) > most:
            raise ValueError(
                f"a text has {len(tokens)} tokens, and the model takes {most} at the most: shorten "
                f"it"
            )

    @contextmanager
    def evaluated(self) -> Iterator[None]:
        """The model in evaluation mode, as from_pretrained does not leave it."""
        with restored(self.loaded.model.modules(), "training"):
            self.loaded.model.eval()
            yield
