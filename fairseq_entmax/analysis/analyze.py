"""The command ``fairseq-entmax analyze``: what every head of one or more models does.

:func:`analyse` loads models and data; :func:`record` accumulates the measures of attention weights
in one pass over the data; :func:`written` assembles the document."""

from __future__ import annotations

import argparse
import logging
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from fairseq_entmax.analysis import arguments as choices
from fairseq_entmax.analysis import document
from fairseq_entmax.analysis import measures as registry
from fairseq_entmax.analysis.data import GENERATED, data_types, generation, loading
from fairseq_entmax.analysis.data.annotations.annotated import Annotations
from fairseq_entmax.analysis.data.batch import Tables
from fairseq_entmax.analysis.data.generation import GeneratedDataset, search_options
from fairseq_entmax.analysis.data.samples import evenly_spread, on_device
from fairseq_entmax.analysis.document import summary
from fairseq_entmax.analysis.document.map_entries import maps_of
from fairseq_entmax.analysis.document.model_entries import model_entry
from fairseq_entmax.analysis.models.loaded import LoadedModel, load_models
from fairseq_entmax.analysis.passes.collect import DataCounts, ModelCollector
from fairseq_entmax.analysis.passes.importance_shares import Shares, shares_of
from fairseq_entmax.progress import watched

logger = logging.getLogger(__name__)

LONGEST_SHOWN = 80


def parser() -> argparse.ArgumentParser:
    options = loading.data_parser(choices.ANALYZE)
    options.prog = "fairseq-entmax analyze"
    choices.add_analyze_options(options)
    return options


def main(arguments: Sequence[str]) -> None:
    loading.log_to_stderr()
    args = loading.parse(parser(), arguments)
    wanted = _wanted(args)
    choices.check_counts(args)
    data_types.type_named(args.task).check_options(args)
    generation.check_options(args)
    document.check_output(args.output, args.overwrite)
    analysis = analyse(args, wanted)
    path = document.write(analysis, args.output)
    print(summary.as_table(analysis))
    print(f"analysis: {path}")


class Study(NamedTuple):
    """The inputs of an analysis; ``datasets`` has one data set per model.

    ``sentences``: the sentences whose attention maps are kept; None chooses some of all lengths."""

    args: Namespace
    wanted: Sequence[str]
    data_type: data_types.DataType
    task: Any
    dataset: Any
    models: Sequence[LoadedModel]
    datasets: Sequence[Any]
    tables: Tables
    sentences: list[int] | None


class Recorded(NamedTuple):
    """Results of one pass: a collector per model, counts of the data, the maps' sentences."""

    collectors: list[ModelCollector]
    counts: DataCounts
    sentences: list[int]


def analyse(args: Namespace, wanted: Sequence[str]) -> dict[str, Any]:
    """Load what the options name, analyse it, and return the document."""
    task = loading.setup_task(args)
    names = None if args.names is None else [name.strip() for name in args.names.split(",")]
    models = load_models(args, task, names)
    data_type = data_types.type_of_task(task)
    dataset = loading.load_dataset(task, args.gen_subset)
    networks = [loaded.model for loaded in models]
    sentences = None
    if args.sentences is not None:
        sentences = _sentences(args.sentences, len(dataset))
        loading.check_lengths(task, dataset, networks, sentences)
    costly = [_costly(loaded, wanted, args.measures is not None) for loaded in models]
    annotations = None
    if args.conllu is not None:
        annotations = Annotations(args.conllu, task.source_dictionary, len(dataset))
    tables = data_type.tables(task, loading.device_of(args), annotations)
    datasets = [dataset] * len(models)
    if args.of == GENERATED:
        config = loading.configuration(args)
        datasets = [GeneratedDataset(dataset, model, task, config) for model in networks]
    study = Study(args, wanted, data_type, task, dataset, models, datasets, tables, sentences)
    recorded = record(study)
    seen = sorted(recorded.counts.ids)
    importance = [
        {one.name: shares_of(args, one, loaded, texts, seen, tables) for one in possible}
        for loaded, texts, possible in zip(models, datasets, costly, strict=True)
    ]
    return written(study, recorded, importance)


def record(study: Study) -> Recorded:
    """Run every model over the data once and accumulate the measures of its attention weights."""
    args, data_type = study.args, study.data_type
    collectors = [ModelCollector(one, study.wanted) for one in study.models]
    lengths: dict[int, int] = {}
    networks = [loaded.model for loaded in study.models]
    batches = loading.batches(args, study.task, study.dataset, networks)
    counts = DataCounts(study.tables.annotations)
    what, is_shown = f"analyse '{args.gen_subset}'", loading.shows_progress(args)
    for sample in watched(batches, what, is_shown=is_shown, unit="batches"):
        if not sample:
            continue
        sample = on_device(sample, study.tables.device)
        batch = study.tables.batch(sample)
        counts.update(sample, batch)
        longest = batch.source.lengths
        for collector, dataset in zip(collectors, study.datasets, strict=True):
            pair, text = sample, batch
            if args.of == GENERATED:
                pair = dataset.generate(sample)
                text = study.tables.with_target(batch, pair["net_input"]["prev_output_tokens"])
            collector.update(pair, text)
            longest = torch.maximum(longest, text.target.lengths)
        shown = data_type.length_shown(longest)
        lengths |= zip(sample["id"].tolist(), shown.tolist(), strict=True)
    if not counts.ids:
        raise ValueError(f"--gen-subset got {args.gen_subset!r}, which has no usable sentence")
    chosen = typical(lengths) if study.sentences is None else study.sentences
    return Recorded(collectors, counts, chosen)


def typical(lengths: dict[int, int]) -> list[int]:
    """Choose sentences of all lengths, those near the median first. A map of more tokens than
    :data:`LONGEST_SHOWN` is hard to read, so longer sentences come only if others do not suffice."""
    ordered = sorted(lengths, key=lambda one: (lengths[one], one))
    median = lengths[ordered[len(ordered) // 2]]
    readable = [one for one in ordered if lengths[one] <= LONGEST_SHOWN]
    among = readable if len(readable) >= choices.MAPS else ordered
    chosen = [among[place] for place in evenly_spread(len(among), choices.MAPS)]
    return sorted(chosen, key=lambda one: abs(lengths[one] - median))


def written(
    study: Study, recorded: Recorded, importance: Sequence[dict[str, Shares]]
) -> dict[str, Any]:
    """Assemble the document, the content of ``analysis.json``."""
    args, annotated = study.args, recorded.counts.annotated
    generated = [getattr(dataset, "numbers", None) for dataset in study.datasets]
    analysis = {
        "format": document.FORMAT,
        "version": document.VERSION,
        "data": {
            "path": args.data,
            "subset": args.gen_subset,
            "subwords": study.tables.source.kind,
            **study.data_type.counted(study.task, dict(recorded.counts.numbers)),
        },
        "settings": _settings(study, importance),
        "numbers": [],
        "models": list(map(model_entry, recorded.collectors, importance, generated)),
        "annotations": None if annotated is None else annotated.results(),
        "maps": maps_of(
            study.datasets, recorded.sentences, study.models, study.task, args.of == GENERATED
        ),
    }
    if args.of == GENERATED:
        config = loading.configuration(args).generation
        analysis |= {"of": GENERATED, "search": search_options(config, study.task)}
    analysis["numbers"] = [number.as_json() for number in registry.numbers_of(analysis)]
    return analysis


def _wanted(args: Namespace) -> list[str]:
    """Return the measures to compute: those requested, or all that suit the type of data."""
    wanted = choices.chosen_names("--measures", args.measures, registry.optional_names())
    data_type = data_types.type_named(args.task)
    without = [name for name in wanted if name in data_type.left_out]
    if without and args.measures is not None:
        raise ValueError(
            f"--measures got {without[0]!r}, which {data_type.models} do not have: leave it out"
        )
    return [name for name in wanted if name not in data_type.left_out]


def _costly(loaded: LoadedModel, wanted: Sequence[str], is_named: bool) -> list[Any]:
    """Return the importance measures, which need extra passes, that can be computed for a model."""
    possible = []
    for one in registry.importance_measures():
        if one.name not in wanted:
            continue
        try:
            one.check(loaded.model)
            possible.append(one)
        except ValueError as error:
            if is_named:
                raise ValueError(f"--measures: {loaded.path}: {error}") from None
            logger.warning("%s: %s", loaded.path, error)
    return possible


def _sentences(text: str, size: int) -> list[int]:
    numbers = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if not (part.isascii() and part.isdigit() and int(part) < size):
            raise ValueError(
                f"--sentences got {part!r}: give comma-separated numbers from 0 to {size - 1}, such as 0,5,17"
            )
        numbers.append(int(part))
    return list(dict.fromkeys(numbers))


def _settings(study: Study, importance: Sequence[dict[str, Shares]]) -> dict[str, Any]:
    settings: dict[str, Any] = {"measures": list(study.wanted)}
    for one in registry.measures():
        settings |= one.settings
        if isinstance(one, registry.ImportanceMeasure):
            numbers = (shares[one.name].sentences for shares in importance if one.name in shares)
            settings[one.option] = max(numbers, default=0)
    return settings
