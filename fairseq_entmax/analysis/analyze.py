"""The command ``fairseq-entmax analyze``: what every head of one or more models does."""

from __future__ import annotations

import argparse
import logging
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from fairseq_entmax.analysis import document, loading, summary
from fairseq_entmax.analysis.annotations.annotated import Annotations
from fairseq_entmax.analysis.arguments import (
    ANALYZE,
    GRADIENT,
    MAPS,
    RELEVANCE,
    add_analyze_options,
    check_counts,
    chosen_measures,
)
from fairseq_entmax.analysis.collect import (
    ModelCollector,
    Tables,
    collect,
    maps_of,
    samples,
    shown_at_most,
)
from fairseq_entmax.analysis.entries import alpha_record, model_entry
from fairseq_entmax.analysis.importance.relevance import check_rules
from fairseq_entmax.analysis.importance.sensitivity import check_gradient
from fairseq_entmax.analysis.importance.shares import (
    ByHead,
    evenly_spread,
    gradient_shares,
    relevance_shares,
)
from fairseq_entmax.analysis.maps import MostDifferent
from fairseq_entmax.analysis.measures import OFFSETS
from fairseq_entmax.analysis.statistics import DENSITY_BINS, POSITIONAL_SHARE, RARE_RANK

logger = logging.getLogger(__name__)

GRADIENT_BATCH = 16


def parser() -> argparse.ArgumentParser:
    """The command's options, fairseq's among them."""
    options = loading.data_parser(ANALYZE)
    options.prog = "fairseq-entmax analyze"
    add_analyze_options(options)
    return options


def main(arguments: Sequence[str]) -> None:
    """Run the command.

    Raises:
        OSError, ValueError, RuntimeError: in one sentence, for the command to print.
    """
    loading.log_to_stderr()
    args = loading.parse(parser(), arguments)
    if not args.output:
        raise ValueError("give --output DIR, where analysis.json goes")
    wanted = chosen_measures(args.measures)
    check_counts(args)
    document.check_output(args.output, args.overwrite)
    analysis = analyse(args, wanted)
    path = document.write(analysis, args.output)
    print(summary.as_table(analysis))
    print(f"analysis: {path}")


def analyse(
    args: Namespace,
    wanted: Sequence[str],
    task: Any = None,
    models: Sequence[loading.LoadedModel] | None = None,
) -> dict[str, Any]:
    """Run and put together the document.

    Args:
        args: parsed options.
        wanted: names of :data:`MEASURES`.
        task, models: where they are at hand; None loads what the options name.
    """
    task = loading.setup_task(args) if task is None else task
    if models is None:
        names = args.names.split(",") if args.names is not None else None
        models = loading.load_models(args, task, names)
    dataset = loading.load_dataset(task, args.gen_subset)
    networks = [loaded.model for loaded in models]
    sentences = _sentences(args.sentences, len(dataset))
    loading.check_lengths(task, dataset, networks, sentences or [], "--sentences")
    shown = shown_at_most(dataset, networks, sentences or [])
    if len(shown) < len(sentences or []):
        raise ValueError(
            f"--sentences got {args.sentences!r}, whose maps are more than a report can show: the "
            f"first {len(shown)} are not, give fewer or shorter ones"
        )
    ways = [_ways(loaded, wanted, args.measures is not None) for loaded in models]
    records = [alpha_record(loaded) for loaded in models]
    tables = Tables(task, loading.device_of(args))
    annotations = None
    if args.conllu is not None:
        annotations = Annotations(args.conllu, task.source_dictionary, len(dataset))
    collectors = [ModelCollector(loaded, wanted, annotations) for loaded in models]
    chosen = MostDifferent(MAPS) if sentences is None else None
    batches = loading.batches(args, task, dataset, networks)
    watched = loading.with_progress(args, batches, f"analyse '{args.gen_subset}'")
    counts, annotated = collect(watched, collectors, tables, chosen, annotations)
    if chosen is not None:
        found = chosen.sentences()
        sentences = shown_at_most(dataset, networks, found)
        if len(sentences) < len(found):
            logger.warning(
                "of the %d sentences whose heads differ most, maps of %d are kept: more would be "
                "more than a report can show",
                len(found),
                len(sentences),
            )
    seen = sorted(counts.ids)
    if not seen:
        raise ValueError(f"--gen-subset got {args.gen_subset!r}, of which no sentence is left")
    importance = [
        _importance(args, model, dataset, seen, tables, found)
        for model, found in zip(networks, ways, strict=True)
    ]
    entries = zip(collectors, importance, records, strict=True)
    return {
        "format": document.FORMAT,
        "version": document.VERSION,
        "data": {
            "path": args.data,
            "subset": args.gen_subset,
            "source_lang": task.cfg.source_lang,
            "target_lang": task.cfg.target_lang,
            "subwords": tables.source.kind,
            **counts.as_json(),
        },
        "settings": _settings(args, wanted, len(seen)),
        "models": [model_entry(*entry) for entry in entries],
        "annotations": None if annotated is None else annotated.results(),
        "maps": maps_of(dataset, sentences or [], models, task, tables),
    }


def _ways(loaded: loading.LoadedModel, wanted: Sequence[str], is_asked: bool) -> list[str]:
    """Which of relevance and gradient can be worked out for a model.

    Raises:
        ValueError: one cannot, and was asked for by name.
    """
    found = []
    for name, check in ((GRADIENT, check_gradient), (RELEVANCE, check_rules)):
        if name not in wanted:
            continue
        try:
            check(loaded.model)
            found.append(name)
        except ValueError as error:
            if is_asked:
                raise ValueError(f"--measures: {loaded.path}: {error}") from None
            logger.warning("%s: %s", loaded.path, error)
    return found


def _sentences(text: str | None, size: int) -> list[int] | None:
    """The numbers that ``--sentences`` gives; None where it does not."""
    if text is None:
        return None
    numbers = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if not (part.isascii() and part.isdigit() and int(part) < size):
            raise ValueError(
                f"--sentences got {part!r}: give numbers from 0 to {size - 1} with commas between "
                f"them, such as 0,5,17"
            )
        numbers.append(int(part))
    return list(dict.fromkeys(numbers))


def _settings(args: Namespace, wanted: Sequence[str], size: int) -> dict[str, Any]:
    return {
        "measures": list(wanted),
        "offsets": list(OFFSETS),
        "density_bins": DENSITY_BINS,
        "rare_rank": RARE_RANK,
        "positional_share": POSITIONAL_SHARE,
        "relevance_sentences": min(args.relevance_sentences, size) if RELEVANCE in wanted else 0,
        "gradient_sentences": min(args.gradient_sentences, size) if GRADIENT in wanted else 0,
    }


def _importance(
    args: Namespace,
    model: Any,
    dataset: Any,
    seen: Sequence[int],
    tables: Tables,
    ways: Sequence[str],
) -> dict[str, ByHead]:
    """The shares of heads by each of the ways."""
    device = tables.source.rank.device
    found: dict[str, ByHead] = {}
    if GRADIENT in ways:
        spread = [seen[place] for place in evenly_spread(len(seen), args.gradient_sentences)]
        at_once = min(args.batch_size or GRADIENT_BATCH, GRADIENT_BATCH)
        batches = list(samples(dataset, spread, device, at_once, args.max_tokens))
        shown = loading.with_progress(args, batches, GRADIENT)
        found[GRADIENT] = gradient_shares(model, shown, tables.pad)
    if RELEVANCE in ways:
        spread = [seen[place] for place in evenly_spread(len(seen), args.relevance_sentences)]
        batches = list(samples(dataset, spread, device))
        shown = loading.with_progress(args, batches, RELEVANCE)
        found[RELEVANCE] = relevance_shares(model, shown)
    return found
