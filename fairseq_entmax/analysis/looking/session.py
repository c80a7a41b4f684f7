"""A model that is looked at on sentences of one's own."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis import kinds, loading
from fairseq_entmax.analysis.arguments import GENERATED
from fairseq_entmax.analysis.batch import Batch
from fairseq_entmax.analysis.generation import GeneratedDataset, check_options, search_options
from fairseq_entmax.analysis.kinds.classes import label_names, pooled_tokens
from fairseq_entmax.analysis.looking import page, texts
from fairseq_entmax.analysis.looking.segmentation import Segmentation, Segmented, unknown_said
from fairseq_entmax.analysis.looking.sentence import Classified, Item, Look
from fairseq_entmax.analysis.models import LoadedModel
from fairseq_entmax.analysis.recorder import record_pass
from fairseq_entmax.analysis.report.payload import joined_text
from fairseq_entmax.analysis.sentences import on_device
from fairseq_entmax.analysis.tables import Tables
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.models.classifier_hub import ClassifierHubInterface
from fairseq_entmax.modules import attention_modules


@dataclass
class Session:
    """A model with all that its sentences need.

    Attributes:
        args: parsed options of fairseq.
        task: fairseq's.
        loaded: the model.
        source, target: how texts are cut; ``target`` of what is written, where it is.
        detokenize: from pieces, with spaces between them, to text; None joins them by their marks.
        notes: what is to be known of the model and its data.
    """

    args: Namespace
    task: Any
    loaded: LoadedModel
    source: Segmentation
    target: Segmentation
    detokenize: Callable[[str], str] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def kind(self) -> kinds.Kind:
        """Of the model's data."""
        return kinds.kind_of_task(self.task)

    def look(
        self,
        sentences: Sequence[str],
        translations: Sequence[str] | None = None,
        seconds: Sequence[str] | None = None,
    ) -> list[Look]:
        """Look at sentences.

        Args:
            sentences: as they would be written, not cut.
            translations: of each what the model is to have said of it; None lets it translate.
            seconds: of each the second text of a pair that is classified; None without.

        Raises:
            ValueError: a text is empty or too long, or a model has no use for a second one, or
                needs it.
        """
        if translations is not None and not self.kind.has_search:
            raise ValueError(
                f"--translation got {translations[0]!r}, and {self.kind.models} write none: leave "
                f"it out"
            )
        if seconds is not None and self.kind.name != "labelled":
            raise ValueError(
                f"--second got {seconds[0]!r}, and {self.kind.models} classify no pairs: leave it "
                f"out, or give --translation"
            )
        given: Sequence[str | None] = translations or seconds or [None] * len(sentences)
        with _evaluated(self.loaded.model):
            return [self._one(text, other) for text, other in zip(sentences, given, strict=True)]

    def _one(self, text: str, other: str | None) -> Look:
        if self.kind.name == "pairs":
            return self._translated(text, other)
        return self._read(text) if self.kind.name == "text" else self._classified(text, other)

    def _translated(self, text: str, translation: str | None) -> Look:
        source, notes, own = self.source(text), list(self.notes), list[Segmented]()
        numbers = None
        self._check_length(source.tokens, 0)
        if translation is None:
            tokens, numbers = self._generated(source.tokens)
            notes.append(f"translated by {self._search()}")
        else:
            # A word that the source has a marker for has that marker here, too
            there = {old: new for new, old in source.markers.items()}
            own = [self.target(translation, there)]
            tokens = own[0].tokens
            self._check_length(tokens, 1)
        said = translation if translation is not None else self._text(tokens, source)
        notes += _said_of([source, *own])
        item = Item(source.tokens, tokens, generated=numbers)
        return self._look(text, item, notes, said)

    def _read(self, text: str) -> Look:
        source = self.source(text)
        self._check_length(source.tokens, 0)
        return self._look(text, Item(source.tokens), [*self.notes, *_said_of([source])])

    def _classified(self, text: str, second: str | None) -> Look:
        parts = [text] if second is None else [text, second]
        cut = [self.source(part) for part in parts]
        # Marks of beginnings and between texts are those of the task, as predict has them
        settings = Namespace(tokenizer=None, bpe=None)
        hub = ClassifierHubInterface(settings, self.task, [self.loaded.model])
        words = self.task.source_dictionary
        lines = [" ".join(words[token] for token in one.tokens[:-1]) for one in cut]
        try:
            tokens = hub.encode(lines[0] if second is None else (lines[0], lines[1]))
        except ValueError as error:
            remedy = str(error).replace("give predict a pair (first, second)", "give --second TEXT")
            raise ValueError(remedy) from None
        sample = self._sample(self.dataset([Item(tokens)]))
        _, output = record_pass(self.loaded.model, sample)
        probs = self.loaded.model.get_normalized_probs(output, False, sample)[0]
        label = int(probs.argmax())
        pooling = {name: one[0].float().cpu() for name, one in output[1]["pooling"].items()}
        keys = pooled_tokens(self.loaded.model, sample["net_input"]["src_tokens"])
        visible = {name: one[0].cpu() for name, one in keys.items()}
        said = Classified(label_names(self.task)[label], float(probs[label]), pooling, visible)
        notes = [*self.notes, *_said_of(cut)]
        shown = text if second is None else f"{text} / {second}"
        return self._look(shown, Item(tokens, label=label), notes, classified=said)

    def _look(
        self,
        text: str,
        item: Item,
        notes: list[str],
        said: str | None = None,
        classified: Classified | None = None,
    ) -> Look:
        """What one pass over a sentence gives."""
        sample = self._sample(self.dataset([item]))
        attention, _ = record_pass(self.loaded.model, sample)
        tables = self.tables()
        batch = tables.batch(sample)
        layers, gates = self._whole(attention, batch)
        tokens = self.kind.tokens(self.task, sample)
        read, target = tokens["queries"], tokens["targets"]
        numbers = [batch.source.words, batch.target.words if read else None, None]
        if target:
            words = self.task.target_dictionary
            marks = torch.tensor([words.bos(), words.eos(), words.pad()], device=self._device)
            special = torch.isin(sample["target"], marks)
            numbers[2] = tables.target.words(sample["target"], special)
        lists = [[] if one is None else one[0].tolist() for one in numbers]
        return Look(
            text,
            said,
            item.generated is not None,
            tokens["source"] or read,
            read,
            target,
            layers,
            gates,
            classified,
            list(dict.fromkeys(notes)),
            _word_numbers=(lists[0], lists[1], lists[2]),
            _item=item,
            _page=self._write,
        )

    def _whole(
        self, attention: Any, batch: Batch
    ) -> tuple[dict[str, list[Tensor]], dict[str, list[list[float]]]]:
        """The weights and gates of every layer, also of those without heads."""
        layers: dict[str, list[Tensor]] = {}
        gates: dict[str, list[list[float]]] = {}
        modules = sorted(
            attention_modules(self.loaded.model), key=lambda one: (ATTENTIONS.index(one[0]), one[1])
        )
        for name, number, module in modules:
            own = attention.get(name, {}).get(number)
            if own is None:
                own = torch.zeros(1, 0, *(side.tokens.size(1) for side in batch.sides(name)))
            heads = own[0].float().cpu()
            layers.setdefault(name, []).append(heads)
            gate = module.gate
            gates.setdefault(name, []).append(
                [1.0] * len(heads) if gate is None else gate.at_evaluation().tolist()
            )
        return layers, gates

    def dataset(self, items: Sequence[Item]) -> Any:
        """Sentences as a data set of fairseq."""
        sources = [item.source for item in items]
        if self.kind.name == "text":
            return texts.text_alone(self.task, sources)
        if self.kind.name == "labelled":
            return texts.labelled(self.task, sources, [item.label for item in items])
        targets = [item.target for item in items if item.target is not None]
        return texts.pairs(self.task, sources, targets)

    def tables(self) -> Tables:
        """Facts on the tokens."""
        return self.kind.tables(self.task, self._device)

    @property
    def _device(self) -> torch.device:
        return next(self.loaded.model.parameters()).device

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
            raise ValueError(
                "the model says nothing of a text: give --translation, what it is to have said, or "
                "another model"
            )
        return sample["target"][0].cpu(), dict(generated.numbers)

    def _search(self) -> str:
        return f"beam search of {self.args.beam}" if self.args.beam > 1 else "greedy search"

    def search(self) -> dict[str, Any]:
        """The search, as a document says it."""
        return search_options(loading.configuration(self.args).generation, self.task)

    def _text(self, tokens: Tensor, source: Segmented) -> str:
        words = self.task.target_dictionary
        pieces = [words[token] for token in tokens.tolist() if token != words.eos()]
        pieces = [source.markers.get(piece, piece) for piece in pieces]
        joined = joined_text(pieces)
        return joined if self.detokenize is None else self.detokenize(joined)

    def _check_length(self, tokens: Tensor, side: int) -> None:
        most = self.loaded.model.max_positions()
        most = most[side] if isinstance(most, tuple) else most
        if len(tokens) > most:
            raise ValueError(
                f"a text has {len(tokens)} tokens, and the model takes {most} at the most: shorten "
                f"it"
            )

    def _write(self, looks: Sequence[Look], path: str | os.PathLike[str], overwrite: bool) -> None:
        with _evaluated(self.loaded.model):
            page.write(self, looks, path, overwrite)


def _said_of(texts_cut: Sequence[Segmented]) -> list[str]:
    """What is unknown of texts, and how they were cut."""
    return unknown_said(texts_cut) + [note for one in texts_cut for note in one.notes]


@contextmanager
def _evaluated(model: Any) -> Iterator[None]:
    """A model in evaluation mode, as from_pretrained does not leave it."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
