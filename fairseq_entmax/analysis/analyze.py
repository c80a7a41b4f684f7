"""The command ``fairseq-entmax analyze``: what every head of one or more models does."""

from __future__ import annotations

import argparse
import logging
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fairseq_entmax.analysis import document, loading, summary
from fairseq_entmax.analysis.annotations import Annotations
from fairseq_entmax.analysis.collect import ModelCollector, Tables, collect, maps_of, samples
from fairseq_entmax.analysis.importance import (
    ByHead,
    evenly_spread,
    gradient_shares,
    relevance_shares,
)
from fairseq_entmax.analysis.maps import MostDifferent
from fairseq_entmax.analysis.measures import OFFSETS
from fairseq_entmax.analysis.statistics import DENSITY_BINS, POSITIONAL_SHARE, RARE_RANK
from fairseq_entmax.analysis.statistics import MEASURES as ONE_PASS_MEASURES
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.models.alpha_record import FILE_NAME as ALPHA_RECORD
from fairseq_entmax.models.alpha_record import read_record
from fairseq_entmax.models.entmax_transformer import attention_modules

logger = logging.getLogger(__name__)

DESCRIPTION = (
    "Looks at every head of one or more models over a data set, in one teacher-forced pass, and "
    "writes analysis.json. Takes fairseq's options on data, languages, batches and devices."
)
RELEVANCE, GRADIENT = "relevance", "gradient"
MEASURES = (*ONE_PASS_MEASURES, RELEVANCE, GRADIENT)
MAPS = 10
RELEVANCE_SENTENCES = 16
GRADIENT_SENTENCES = 100
LONGEST_RECORD = 200
NOT_ANNOTATED = {"dependencies": None, "pos_kl": None, "named_entity": None}


def parser() -> argparse.ArgumentParser:
    """The command's options, fairseq's among them."""
    options = loading.data_parser(DESCRIPTION)
    options.prog = "fairseq-entmax analyze"
    group = options.add_argument_group("Analysis")
    group.add_argument("--output", metavar="DIR", help="where analysis.json goes")
    group.add_argument("--overwrite", action="store_true", help="replace the one that is there")
    group.add_argument("--names", metavar="NAME,…", help="what to call the models of --path")
    group.add_argument(
        "--measures",
        metavar="NAME,…",
        help=f"which to make, of {','.join(MEASURES)} (default: all)",
    )
    group.add_argument(
        "--sentences",
        metavar="N,…",
        help="sentences to keep attention maps of, counted from 0; '' keeps none (default: the "
        f"{MAPS} whose heads differ most)",
    )
    group.add_argument(
        "--conllu",
        metavar="FILE",
        help="parses of the source in CoNLL-U, a sentence for each line of the data set in its "
        "order: adds dependencies, parts of speech and named entities",
    )
    group.add_argument(
        "--relevance-sentences",
        type=int,
        default=RELEVANCE_SENTENCES,
        metavar="N",
        help="how many sentences, spread evenly, relevance is propagated for (default: %(default)s)",
    )
    group.add_argument(
        "--gradient-sentences",
        type=int,
        default=GRADIENT_SENTENCES,
        metavar="N",
        help="likewise for the gradient of the loss (default: %(default)s)",
    )
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
    wanted = _measures(args.measures)
    for name in ("relevance_sentences", "gradient_sentences"):
        if getattr(args, name) < 1:
            raise ValueError(
                f"--{name.replace('_', '-')} got {getattr(args, name)}: give 1 or more, or leave "
                f"the measure out of --measures"
            )
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
    sentences = _sentences(args.sentences, len(dataset))
    tables = Tables(task, loading.device_of(args))
    annotations = None
    if args.conllu:
        annotations = Annotations(args.conllu, task.source_dictionary, len(dataset))
    collectors = [ModelCollector(loaded, wanted, annotations) for loaded in models]
    chosen = MostDifferent(MAPS) if sentences is None else None
    batches = loading.batches(args, task, dataset, [loaded.model for loaded in models])
    shown = loading.with_progress(args, batches, f"analyse '{args.gen_subset}'")
    counts, annotated = collect(shown, collectors, tables, chosen, annotations)
    if chosen is not None:
        sentences = chosen.sentences()
    importance = [_importance(args, loaded.model, dataset, tables, wanted) for loaded in models]
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
        "settings": _settings(args, wanted, len(dataset)),
        "models": [
            _model(collector, shares)
            for collector, shares in zip(collectors, importance, strict=True)
        ],
        "annotations": None if annotated is None else annotated.results(),
        "maps": maps_of(dataset, sentences or [], models, task, tables),
    }


def _measures(text: str | None) -> list[str]:
    if text is None:
        return list(MEASURES)
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in MEASURES:
            raise ValueError(f"--measures got {name!r}: choose from {', '.join(MEASURES)}")
    return [name for name in MEASURES if name in names]


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
    args: Namespace, model: Any, dataset: Any, tables: Tables, wanted: Sequence[str]
) -> dict[str, ByHead]:
    """The shares of heads by each of the two ways that are wanted."""
    device = tables.source.rank.device
    found: dict[str, ByHead] = {}
    if GRADIENT in wanted:
        spread = evenly_spread(len(dataset), args.gradient_sentences)
        batches = list(samples(dataset, spread, device, at_once=16))
        shown = loading.with_progress(args, batches, "gradient")
        found[GRADIENT] = gradient_shares(model, shown, tables.pad)
    if RELEVANCE in wanted:
        spread = evenly_spread(len(dataset), args.relevance_sentences)
        batches = list(samples(dataset, spread, device))
        try:
            shown = loading.with_progress(args, batches, "relevance")
            found[RELEVANCE] = relevance_shares(model, shown)
        except ValueError as error:
            if args.measures is not None:
                raise
            logger.warning("no relevance for this model: %s", error)
    return found


def _model(collector: ModelCollector, importance: dict[str, ByHead]) -> dict[str, Any]:
    loaded = collector.loaded
    return {
        "name": loaded.name,
        "checkpoint": loaded.path,
        "architecture": loaded.architecture,
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "updates": loaded.updates,
        "loss": collector.loss,
        "alpha_record": _alpha_record(loaded),
        "attentions": [
            _layer(collector, attention, layer, module, importance)
            for attention, layer, module in sorted(
                attention_modules(loaded.model), key=lambda one: ATTENTIONS.index(one[0])
            )
        ],
    }


def _layer(
    collector: ModelCollector,
    attention: str,
    layer: int,
    module: Any,
    importance: dict[str, ByHead],
) -> dict[str, Any]:
    statistics = collector.statistics.layers.get(attention, {}).get(layer)
    specs = collector.loaded.model.cfg.attention_options.specs
    heads: list[dict[str, Any]] = []
    annotated = collector.linguistic
    linguistic = [] if annotated is None else annotated.results(attention, layer)
    if module.mapping is not None and statistics is not None:
        alphas = torch.as_tensor(module.mapping.alpha).double().expand(module.num_heads).tolist()
        gates = (
            [None] * module.num_heads
            if module.gate is None
            else module.gate.at_evaluation().tolist()
        )
        for head in range(module.num_heads):
            shares = {
                name: float(importance[name][attention][layer][head])
                if name in importance
                else None
                for name in (RELEVANCE, GRADIENT)
            }
            heads.append(
                {
                    "head": head,
                    "alpha": alphas[head],
                    **statistics.head(head),
                    "gate": gates[head],
                    **shares,
                    **(linguistic[head] if linguistic else NOT_ANNOTATED),
                }
            )
    densities = [head["density"] for head in heads]
    return {
        "attention": attention,
        "layer": layer,
        "mapping": str(specs[attention][layer]) if heads else None,
        "diversity": None if statistics is None else statistics.diversity(),
        "density_sorted": None if None in densities else sorted(densities),
        "heads": heads,
    }


def _alpha_record(loaded: loading.LoadedModel) -> list[dict[str, Any]] | None:
    """The record of training beside the checkpoint, thinned, up to the checkpoint's update."""
    path = Path(loaded.path).with_name(ALPHA_RECORD)
    if not path.is_file():
        return None
    lines = [
        line
        for line in read_record(path)
        if loaded.updates is None or line["update"] <= loaded.updates
    ]
    kept = evenly_spread(len(lines), LONGEST_RECORD - 2) if len(lines) > LONGEST_RECORD else None
    if kept is not None:
        lines = [lines[index] for index in sorted({0, *kept, len(lines) - 1})]
    return lines or None
