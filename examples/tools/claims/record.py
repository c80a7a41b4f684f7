"""The record of all runs, from which every verdict can be reached without training.

It is a folder with ``record.json`` (when and with what it was made), and one folder for each
corpus, with ``RUN.json.xz`` for each run and with ``speed.json``.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy

PACKED = ".json.xz"
ABOUT, SPEED = "record.json", "speed.json"
ENCODER_SELF, DECODER_SELF, CROSS = "encoder-self", "decoder-self", "cross"
ATTENTIONS = (ENCODER_SELF, DECODER_SELF, CROSS)
SMALL, LARGE = "small", "large"
TRAINED, CONTINUED, PRUNED, SCRATCH = "trained", "continued", "pruned", "scratch"
LOSS = "valid_nll_loss"


class NotInRecord(LookupError):
    """The record lacks what a claim needs. The message says what, as the reason of the verdict."""


class NothingToJudge(NotInRecord):
    """The runs have nothing that the claim is about, or cannot be compared."""


def within(measures: Mapping[str, Any], *path: str) -> Any:
    found: Any = measures
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


@dataclass(frozen=True)
class Head:
    """One head of a run, with its number before pruning and its entry in the analysis."""

    run: Run
    attention: str
    layer: int
    head: int
    measures: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.attention}:{self.layer}.{self.head}"

    def get(self, *path: str) -> Any:
        return within(self.measures, *path)

    def value(self, *path: str) -> float:
        found = self.get(*path)
        if found is None:
            raise NotInRecord(f"the analysis has no {' '.join(path)} of {self.name}")
        return float(found)


@dataclass(frozen=True)
class Run:
    """One trained, continued or pruned model, as claims_record.py writes it.

    ``heads`` has the number of heads in each layer, bottom layer first, and ``kept`` the indices
    that a pruned model's heads had before. ``updates`` counts those of the baseline too, ``epochs``
    does not. ``search`` has the number of heads that were ``open`` after some ``updates``.
    """

    run: str
    model: str
    size: str
    seed: int
    role: str
    budget: str | None
    heads: Mapping[str, Sequence[int]]
    kept: Mapping[str, Sequence[Sequence[int]]] | None
    updates: int
    epochs: int
    ended_by: str
    parameters: int
    curve: Sequence[Mapping[str, Any]]
    analysis: Mapping[str, Any]
    translation: Mapping[str, Any]
    ablation: Mapping[str, Any] | None
    search: Sequence[Mapping[str, Any]] | None = None
    device: str | None = None

    @property
    def analyzed(self) -> Mapping[str, Any]:
        return self.analysis["models"][0]

    @property
    def test_set(self) -> tuple[int, ...]:
        """Sizes of the test set, which differ if the test sets of two runs do."""
        sizes = ("sentences", "source_tokens", "target_tokens")
        return tuple(self.analysis["data"][size] for size in sizes)

    @property
    def bleu(self) -> float:
        return float(self.translation["bleu"])

    @property
    def brevity(self) -> float:
        """BLEU's brevity penalty: below 1 if translations are shorter than the references."""
        hypotheses, references = self.sentences[:, :2].sum(0)
        return float(numpy.exp(min(0.0, 1 - references / hypotheses)))

    @property
    def losses(self) -> list[float]:
        """The validation loss after each epoch, without label smoothing, in bits a token."""
        found = [float(point[LOSS]) for point in self.curve if point.get(LOSS) is not None]
        if not found:
            raise NotInRecord(f"{self.run} has no curve of the validation loss")
        return found

    @cached_property
    def sentences(self) -> numpy.ndarray[Any, Any]:
        return numpy.array(self.translation["sentences"], dtype=numpy.int64)

    def layers(self, attention: str) -> list[Mapping[str, Any]]:
        found = [a for a in self.analyzed["attentions"] if a["attention"] == attention]
        return sorted(found, key=lambda entry: entry["layer"])

    def each_head(self, *attentions: str) -> Iterator[Head]:
        for attention in attentions or ATTENTIONS:
            for entry in self.layers(attention):
                layer = entry["layer"]
                for place, measures in enumerate(entry["heads"]):
                    number = self.kept[attention][layer][place] if self.kept else measures["head"]
                    yield Head(self, attention, layer, number, measures)


Pairs = list[tuple[Run, Run]]


@dataclass(frozen=True)
class Corpus:
    name: str
    runs: Sequence[Run]
    speed: Mapping[str, Any] | None = None

    def of(self, **wanted: Any) -> list[Run]:
        chosen = [run for run in self.runs if all(getattr(run, k) == v for k, v in wanted.items())]
        if not chosen:
            raise NotInRecord(f"the record has no run with {in_words(wanted)}")
        return sorted(chosen, key=lambda run: (run.seed, run.run))

    def pairs(self, first: Mapping[str, Any], second: Mapping[str, Any], **common: Any) -> Pairs:
        kinds = [{**first, **common}, {**second, **common}]
        ones, others = ({run.seed: run for run in self.of(**kind)} for kind in kinds)
        both = ones.keys() & others.keys()
        seeds = sorted(seed for seed in both if ones[seed].test_set == others[seed].test_set)
        if not seeds:
            one, other = map(in_words, kinds)
            raise NotInRecord(
                f"no seed has both a run with {one} and one with {other}, scored on the same test set"
            )
        return [(ones[seed], others[seed]) for seed in seeds]


def read_object(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(lzma.decompress(data) if path.name.endswith(PACKED) else data)


def run_of(document: Mapping[str, Any]) -> Run:
    return Run(**{field.name: document.get(field.name) for field in fields(Run)})  # type: ignore[arg-type]


def read_record(folder: Path) -> tuple[Mapping[str, Any], list[Corpus]]:
    """The content of ``record.json``, and the corpora; one without runs is empty."""
    about = read_object(folder / ABOUT)
    corpora = []
    for name in about["corpora"]:
        speed = folder / name / SPEED
        runs = [run_of(read_object(path)) for path in sorted((folder / name).glob(f"*{PACKED}"))]
        corpora.append(Corpus(name, runs, read_object(speed) if speed.exists() else None))
    return about, corpora


def in_words(wanted: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in wanted.items())
