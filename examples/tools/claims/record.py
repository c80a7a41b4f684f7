"""The record: what is kept of each run, so that every verdict can be reached without training.

A folder with ``record.json`` (when, with what and how long), and for each corpus a folder with
``RUN.json.xz`` of each run and ``speed.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy

from claims.checks import (
    ABOUT_FIELDS,
    ATTENTION_FIELDS,
    ATTENTIONS,
    CROSS,
    DECODER_SELF,
    ENCODER_SELF,
    OPTIONAL_ABOUT_FIELDS,
    PACKED,
    RUN_FIELDS,
    SEARCH_FIELDS,
    SEARCH_POINT_FIELDS,
    check,
    check_speed,
    check_translation,
    read_object,
)

__all__ = ["ATTENTIONS", "CROSS", "DECODER_SELF", "ENCODER_SELF"]

FORMAT, VERSION = "fairseq-entmax-claims", 1
ABOUT, SPEED = "record.json", "speed.json"
SMALL, LARGE = "small", "large"
LOSS = "valid_nll_loss"
TRAINED, CONTINUED, PRUNED, SCRATCH = "trained", "continued", "pruned", "scratch"
EQUALTIME = "equaltime"  # trained for as many updates as take as long as the other mapping's


class NotInRecord(LookupError):
    """What a claim needs is not in the record: the message says what, as the reason of a verdict."""


class NothingToJudge(NotInRecord):
    """The record has the runs, and they have nothing of what the claim speaks of, or cannot be compared."""


@dataclass(frozen=True)
class Head:
    """One head of a run.

    Attributes:
        attention: one of `ATTENTIONS`.
        layer: from 0, the bottom.
        head: its number in the model before pruning, from 0.
        measures: its entry in the analysis.
    """

    attention: str
    layer: int
    head: int
    measures: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Such as ``encoder-self:0.3``, as ablations have it."""
        return f"{self.attention}:{self.layer}.{self.head}"

    def value(self, *path: str) -> float:
        """A number of the analysis, such as ``value("values", "alpha")``.

        Raises:
            NotInRecord: the analysis has none for this head.
        """
        found: Any = self.measures
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if found is None:
            raise NotInRecord(f"the analysis has no {' '.join(path)} of {self.name}")
        return float(found)


@dataclass(frozen=True)
class Run:
    """One trained, continued or pruned model.

    Attributes:
        heads: of each attention the number of heads of each layer, the bottom first.
        kept: of a pruned model, likewise, the numbers that its heads had before.
        updates: of the whole model, the baseline's included; own_updates without those.
        cpu_seconds: of user and system, of its own trainings and of all attempts, what was done again
            included: no measure of speed.
        curve: of each epoch ``epoch``, ``updates``, ``valid_loss``, ``valid_nll_loss``, ``train_loss``.
        analysis: the document of ``fairseq-entmax analyze`` on the test set, without maps.
        translation: ``bleu`` and ``chrf`` in percent, and of each test sentence, as ``sentences``, the
            sufficient statistics of BLEU.
        ablation: the document of ``fairseq-entmax ablate``, where it was made.
        search: of a pruned run how many heads of each attention were ``open`` after how many
            ``updates`` of the search, where that was kept.
    """

    corpus: str
    run: str
    model: str
    size: str
    seed: int
    role: str
    budget: str | None
    from_run: str | None
    heads: Mapping[str, Sequence[int]]
    kept: Mapping[str, Sequence[Sequence[int]]] | None
    updates: int
    own_updates: int
    epochs: int
    ended_by: str
    cpu_seconds: float
    parameters: int
    curve: Sequence[Mapping[str, Any]]
    analysis: Mapping[str, Any]
    translation: Mapping[str, Any]
    ablation: Mapping[str, Any] | None
    search: Sequence[Mapping[str, Any]] | None = None

    @property
    def analyzed(self) -> Mapping[str, Any]:
        """The one model of the analysis."""
        return self.analysis["models"][0]

    @property
    def bleu(self) -> float:
        """Of the test set, in percent."""
        return float(self.translation["bleu"])

    @property
    def last_fall(self) -> float:
        """By how much the validation loss without label smoothing fell in the last epoch, as a share of it.

        Raises:
            NotInRecord: the run has no two validations.
        """
        losses = [float(loss) for point in self.curve if (loss := point.get(LOSS)) is not None]
        if len(losses) < 2:
            raise NotInRecord(f"{self.run} has no two validations")
        return losses[-2] / losses[-1] - 1

    @property
    def least_validation_loss(self) -> float:
        """Of all epochs, without label smoothing, in bits a token: that of the best checkpoint.

        Raises:
            NotInRecord: the run has no curve.
        """
        losses = [float(loss) for point in self.curve if (loss := point.get(LOSS)) is not None]
        if not losses:
            raise NotInRecord(f"{self.run} has no curve of the validation loss")
        return min(losses)

    @cached_property
    def sentences(self) -> numpy.ndarray[Any, Any]:
        """BLEU's sufficient statistics, (sentences, 10)."""
        return numpy.array(self.translation["sentences"], dtype=numpy.int64)

    def layers(self, attention: str) -> list[Mapping[str, Any]]:
        """The layers' entries in the analysis, the bottom first; those without heads are left out."""
        found = [a for a in self.analyzed["attentions"] if a["attention"] == attention]
        return sorted(found, key=lambda entry: entry["layer"])

    def each_head(self, *attentions: str) -> Iterator[Head]:
        """The heads of these attentions, or of all."""
        for attention in attentions or ATTENTIONS:
            for entry in self.layers(attention):
                layer = entry["layer"]
                for place, measures in enumerate(entry["heads"]):
                    number = self.kept[attention][layer][place] if self.kept else measures["head"]
                    yield Head(attention, layer, number, measures)


@dataclass(frozen=True)
class Corpus:
    """All runs of one corpus.

    Attributes:
        speed: what was measured of translation and training; None where it was not.
        left_out: names of runs whose files are there, but whose seed or model ``record.json`` does not
            name: an earlier call may have made them, with other settings.
    """

    name: str
    runs: Sequence[Run]
    speed: Mapping[str, Any] | None = None
    left_out: Sequence[str] = ()

    def of(
        self,
        *,
        model: str | None = None,
        size: str | None = None,
        role: str | None = None,
        budget: str | None = None,
        seed: int | None = None,
    ) -> list[Run]:
        """The runs of which all that is given is so, by seed.

        ``role`` is one of `TRAINED`, `CONTINUED`, `PRUNED`, `SCRATCH` and `EQUALTIME`.
        """
        wanted = {"model": model, "size": size, "role": role, "budget": budget, "seed": seed}
        given = {name: value for name, value in wanted.items() if value is not None}
        chosen = [run for run in self.runs if all(getattr(run, k) == v for k, v in given.items())]
        return sorted(chosen, key=lambda run: (run.seed, run.run))

    def need(self, **wanted: Any) -> list[Run]:
        """As :meth:`of`, and at least one.

        Raises:
            NotInRecord: there is none.
        """
        runs = self.of(**wanted)
        if not runs:
            raise NotInRecord(f"the record has no run with {_in_words(wanted)}")
        return runs

    def pairs(
        self, first: Mapping[str, Any], second: Mapping[str, Any], **common: Any
    ) -> list[tuple[Run, Run]]:
        """Runs of two kinds with the same seed, by seed.

        Args:
            first: what :meth:`of` takes, of the one kind.
            second: of the other.
            common: of both.

        Raises:
            NotInRecord: no seed has both.
        """
        ones = {run.seed: run for run in self.need(**first, **common)}
        others = {run.seed: run for run in self.need(**second, **common)}
        seeds = sorted(ones.keys() & others.keys())
        if not seeds:
            raise NotInRecord(
                f"no seed has both a run with {_in_words({**first, **common})} and one with "
                f"{_in_words({**second, **common})}"
            )
        return [(ones[seed], others[seed]) for seed in seeds]


@dataclass(frozen=True)
class Record:
    """The whole record.

    Attributes:
        about: what ``record.json`` says.
    """

    about: Mapping[str, Any]
    corpora: Sequence[Corpus]


def read_record(folder: Path) -> Record:
    """Read a record.

    A corpus that ``record.json`` names and that has no run yet is empty: a record can be read while
    it is being made. Runs of seeds that it does not name are left out, and so are those of models
    that it does not name, where it has ``models``.

    Raises:
        ValueError: a file is missing, damaged, or lacks something; one sentence says which and what.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no record at {folder}: give the folder that claims.sh wrote")
    about = read_object(folder / ABOUT)
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise ValueError(
            f"{folder / ABOUT} is no record of format {FORMAT}, version {VERSION}: give a folder "
            "that claims.sh wrote"
        )
    optional = {
        name: OPTIONAL_ABOUT_FIELDS[name] for name in OPTIONAL_ABOUT_FIELDS if name in about
    }
    check(folder / ABOUT, about, {**ABOUT_FIELDS, **optional})
    corpora = [_corpus(folder / name, about) for name in about["corpora"]]
    if not any(corpus.runs for corpus in corpora):
        raise ValueError(f"the record {folder} has no run: run claims.sh first")
    return Record(about, corpora)


def run_of(document: Mapping[str, Any], path: Path = Path("run.json")) -> Run:
    """A run from its document.

    Args:
        path: how messages name it.

    Raises:
        ValueError: something is missing or not as it should be.
    """
    check(path, document, RUN_FIELDS)
    if document.get("search") is not None:
        check(path, document, SEARCH_FIELDS)
        for point in document["search"]:
            check(path, point, SEARCH_POINT_FIELDS)
    models = document["analysis"].get("models")
    if not isinstance(models, list) or len(models) != 1 or "attentions" not in models[0]:
        raise ValueError(f"{path}: 'analysis' has to be of one model, as analyze writes it")
    for entry in models[0]["attentions"]:
        check(path, entry, ATTENTION_FIELDS)
    check_translation(path, document["translation"])
    for entry in models[0]["attentions"] if document["kept"] else ():
        kept = document["kept"].get(entry["attention"], [])
        if len(kept) <= entry["layer"] or len(kept[entry["layer"]]) != len(entry["heads"]):
            raise ValueError(
                f"{path}: 'kept' and the analysis differ in the heads of {entry['attention']} "
                f"layer {entry['layer']}: analyse this run again"
            )
    return Run(**{f.name: document[f.name] for f in fields(Run) if f.name in document})


def _corpus(folder: Path, about: Mapping[str, Any]) -> Corpus:
    paths = sorted(folder.glob(f"*{PACKED}"))
    found = [run_of(read_object(path), path) for path in paths]
    for path, run in zip(paths, found, strict=True):
        if (run.corpus, run.run) != (folder.name, path.name.removesuffix(PACKED)):
            raise ValueError(f"{path} is of run {run.run} of {run.corpus}: put it where it belongs")
    models = about.get("models")
    runs = [
        run
        for run in found
        if run.seed in about["seeds"] and (models is None or run.model in models)
    ]
    used = {run.run for run in runs}
    left_out = [run.run for run in found if run.run not in used]
    sizes = {len(run.translation["sentences"]): run.run for run in runs}
    if len(sizes) > 1:
        raise ValueError(
            f"{folder}: {' and '.join(sizes.values())} translate {' and '.join(map(str, sizes))} "
            "sentences: translate the same test set with all models"
        )
    path = folder / SPEED
    speed = read_object(path) if path.exists() else None
    if speed is not None:
        check_speed(path, speed)
    return Corpus(folder.name, runs, speed, left_out)


def _in_words(wanted: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in wanted.items())
