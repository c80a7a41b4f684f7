"""The command ``fairseq-entmax rouge``: ROUGE of summaries, with intervals and comparison.

``--json`` prints, with scores in percent::

    {"documents": 1951,
     "settings": {"stem": true, "bytes": null, "sentences": null, "statistic": "f1",
                  "bootstrap": 1000, "seed": 1},
     "rouge1": {"precision": {"value": 36.1, "low": 35.6, "high": 36.7}, "recall": {…}, "f1": {…}},
     "rouge2": {…}, "rougeL": {…},
     "compared": {"rouge1": {"value": 35.0, "change": -0.4, "low": -0.9, "high": 0.1,
                             "p_bootstrap": 0.12}, …},
     "generated": "…", "references": ["…"], "compared_with": "…", "empty_summaries": 0}

``low`` and ``high`` are the ends of an interval. ``compared`` has the ``statistic`` of the other
system, and its change from the first with its interval; it is null without ``--compare``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairseq_entmax.files import check_target, refuse_inputs, write_together
from fairseq_entmax.progress import watched
from fairseq_entmax.summaries import rouge as rouge_scores
from fairseq_entmax.summaries.generated import hypotheses, read_lines
from fairseq_entmax.summaries.oov import MARKER
from fairseq_entmax.summaries.rouge import F1, NAMES, STATISTICS, TYPES, Rouge, RougeOptions
from fairseq_entmax.text_table import text_table

if TYPE_CHECKING:
    from numpy import ndarray


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    for name, least in (("bytes", 1), ("bootstrap", 1), ("seed", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} got {value}: give {least} or more")
    target = None
    if options.output is not None:
        target = check_target(options.output, "--output", options.overwrite)
        inputs = {f"the reference {path}": path for path in options.reference}
        inputs |= {"the generated text": options.generated, "the compared text": options.compare}
        refuse_inputs([target], inputs)
    document = _scored(options)
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if target is not None:
        write_together({target: text.encode()})
    print(text if options.json else _as_table(document), end="")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairseq-entmax rouge",
        description="Scores summaries by ROUGE-1, ROUGE-2 and ROUGE-L, in percent, with 95 % "
        "bootstrap intervals over documents. Needs the extra 'summaries'.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "generated",
        metavar="GENERATED",
        help="output of fairseq-generate; its D-n or H-n belongs to line n, from 0, of each reference",
    )
    add(
        "--reference",
        action="append",
        required=True,
        metavar="REF",
        help="a text with one summary per line; repeat for more references of the same documents, "
        "over which matches and lengths are summed (-f A of ROUGE-1.5.5)",
    )
    add("--text", action="store_true", help="GENERATED is a text with one summary per line")
    add(
        "--bytes",
        type=int,
        metavar="N",
        help="cut summaries and references after N bytes, and compare by recall: 75 for DUC 2004",
    )
    add(
        "--stem",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="use Porter's stemmer for words of more than three letters (default: yes)",
    )
    add(
        "--sentences",
        metavar="SEP",
        help="text after or between sentences, such as '</t>' (its counterpart '<t>' is left out, "
        "too); ROUGE-L is then computed over sentences (rougeLsum), as in ROUGE-1.5.5",
    )
    add("--compare", metavar="OTHER", help="another system's output, in the same form")
    add("--bootstrap", type=int, default=1000, metavar="N", help="resamples (default: 1000)")
    add("--seed", type=int, default=1, help="random seed of the resamples (default: 1)")
    add("--json", action="store_true", help="print JSON instead of a table")
    add("--output", metavar="FILE", help="also write the JSON to this file")
    add("--overwrite", action="store_true", help="replace that file if it exists")
    return parser


def _scored(options: argparse.Namespace) -> dict[str, Any]:
    """The document of a system, with the comparison if another system is given."""
    rouge = Rouge(RougeOptions(options.stem, options.bytes, options.sentences))
    statistic = rouge.options.statistic
    references = [list(read_lines(path)) for path in options.reference]
    paths = [options.generated, *([] if options.compare is None else [options.compare])]
    systems = [_summaries(options, path, references) for path in paths]
    empty = [_warn_if_odd(rouge, path, texts) for path, texts in zip(paths, systems, strict=True)]
    scores = [_scores(rouge, texts, references) for texts in systems]
    document: dict[str, Any] = {
        "documents": len(systems[0]),
        "settings": {
            "stem": options.stem,
            "bytes": options.bytes,
            "sentences": options.sentences,
            "statistic": statistic,
            "bootstrap": options.bootstrap,
            "seed": options.seed,
        },
    }
    means = iter(intervals(scores[0], options.bootstrap, options.seed))
    for kind in TYPES:
        document[kind] = {
            name: dict(zip(("value", "low", "high"), next(means), strict=False))
            for name in STATISTICS
        }
    document["compared"] = None
    if options.compare is not None:
        first, second = (of_all[:, STATISTICS.index(statistic) :: 3] for of_all in scores)
        changes = intervals(second - first, options.bootstrap, options.seed)
        values = second.mean(axis=0).tolist()
        names = ("value", "change", "low", "high", "p_bootstrap")
        document["compared"] = {
            kind: dict(zip(names, (value, *change), strict=True))
            for kind, value, change in zip(TYPES, values, changes, strict=True)
        }
    return document | {
        "generated": options.generated,
        "references": options.reference,
        "compared_with": options.compare,
        "empty_summaries": empty[0],
    }


def _summaries(
    options: argparse.Namespace, path: str, references: Sequence[Sequence[str]]
) -> list[str]:
    """The summaries of a file, one for each line of the references."""
    summaries = list(read_lines(path)) if options.text else hypotheses(path, len(references[0]))
    for name, texts in zip(options.reference, references, strict=True):
        if len(texts) != len(summaries):
            raise ValueError(
                f"--reference {name} has {len(texts)} lines and {path} has {len(summaries)}: "
                f"give texts of the same documents, one per line"
            )
    if not summaries:
        raise ValueError(f"{path} has no summary: give a text with one per line")
    return summaries


def _warn_if_odd(rouge: Rouge, path: str, summaries: Sequence[str]) -> int:
    """Warn of empty summaries and of markers; return the number of empty summaries."""
    empty = sum(map(rouge.is_empty, summaries))
    marked = sum(MARKER.search(text) is not None for text in summaries)
    for number, why in (
        (empty, "are empty, and score 0"),
        (marked, "have markers such as <unk-0>: restore them with fairseq-entmax oov restore"),
    ):
        if number:
            message = f"{number} of {len(summaries)} summaries of {path} {why}"
            print(f"fairseq-entmax rouge: {message}", file=sys.stderr)
    return empty


def _scores(rouge: Rouge, summaries: Sequence[str], references: Sequence[Sequence[str]]) -> ndarray:
    """The scores of all summaries, ``(documents, types · statistics)``."""
    import numpy

    documents = rouge_scores.score_documents(rouge, summaries, references)
    return numpy.array([[x for kind in TYPES for x in each[kind]] for each in documents])


def intervals(scores: ndarray, samples: int, seed: int) -> list[tuple[float, float, float, float]]:
    """For each column of ``(documents, scores)``: mean, interval, and p against a mean of 0.

    95 % of the resampled means lie between the ends of the interval. p is the share of resamples
    whose mean is as far from the mean as that is from 0; it is 1 if all scores are 0.

    Source: Efron and Tibshirani 1993, *An Introduction to the Bootstrap*, chapter 13, as in
    ROUGE-1.5.5; for differences, Koehn 2004, *Statistical Significance Tests for Machine
    Translation Evaluation*, made two-sided.
    """
    import numpy

    random = numpy.random.default_rng(seed)
    number, mean = len(scores), scores.mean(axis=0)
    means = numpy.array(
        [
            scores[random.integers(number, size=number)].mean(axis=0)
            for _ in watched(range(samples), "resamples")
        ]
    )
    low, high = numpy.percentile(means, [2.5, 97.5], axis=0)
    is_as_far = numpy.abs(means - mean) >= numpy.abs(mean)
    p = (is_as_far.sum(axis=0) + 1) / (samples + 1)
    return list(zip(*(column.tolist() for column in (mean, low, high, p)), strict=True))


def _as_table(document: dict[str, Any]) -> str:
    settings = document["settings"]
    statistics = sorted(STATISTICS, key=lambda name: name != settings["statistic"])
    rows = [["", *("F1" if name == F1 else name for name in statistics)]]
    for kind in TYPES:
        rows.append([NAMES[kind], *(_with_interval(document[kind][name]) for name in statistics)])
    how = "stems" if settings["stem"] else "words as they are"
    if settings["bytes"] is not None:
        how += f", cut after {settings['bytes']} bytes"
    if settings["sentences"] is not None:
        how += f", sentences split at {settings['sentences']}"
    lines = [f"{document['documents']} documents; percent [95 %], {how}", text_table(rows)]
    if document["compared"] is not None:
        rows = [["", "other", "change", "p"]]
        for kind, entry in document["compared"].items():
            change = _with_interval({**entry, "value": entry["change"]}, "+")
            p = f"{entry['p_bootstrap']:.3f}"
            rows.append([NAMES[kind], f"{entry['value']:.2f}", change, p])
        lines += [f"compared with {document['compared_with']}, {settings['statistic']}:"]
        lines += [text_table(rows)]
    return "\n".join(lines) + "\n"


def _with_interval(entry: dict[str, float], sign: str = "") -> str:
    value, low, high = (f"{entry[name]:{sign}.2f}" for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"
