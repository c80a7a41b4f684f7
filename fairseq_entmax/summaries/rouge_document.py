"""The results of ``fairseq-entmax rouge``: as JSON, and as a table.

The document, version 1, with scores in percent::

    {"format": "fairseq-entmax-rouge", "version": 1, "documents": 1951,
     "settings": {"stem": true, "bytes": null, "sentences": null, "statistic": "f1",
                  "bootstrap": 1000, "seed": 1, "level": 0.95},
     "rouge1": {"precision": {"value": 36.1, "low": 35.6, "high": 36.7},
                "recall": {…}, "f1": {…}},
     "rouge2": {…}, "rougeL": {…},
     "compared": {"rouge1": {"value": 35.0, "change": -0.4, "low": -0.9, "high": 0.1,
                             "p_bootstrap": 0.12, "p_t_test": 0.11}, …},
     "generated": "…", "references": ["…"], "compared_with": "…", "empty_summaries": 0}

``low`` and ``high`` are the ends of the interval; ``compared``, null without ``--compare``, is of
the ``statistic`` of the other system, and what it has more than the first. A line for each
document, in the order of the references, is::

    {"document": 0, "rouge1": {"precision": …, "recall": …, "f1": …}, "rouge2": {…},
     "rougeL": {…}, "compared": {"rouge1": {…}, …}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairseq_entmax.paired_tests import paired_t_test
from fairseq_entmax.summaries.bootstrap import LEVEL, differences, intervals
from fairseq_entmax.summaries.rouge import F1, NAMES, STATISTICS, TYPES, RougeOptions, Score
from fairseq_entmax.text_table import text_table

if TYPE_CHECKING:
    from numpy import ndarray

FORMAT, VERSION = "fairseq-entmax-rouge", 1
Scores = Sequence[Dictionary[str, Score]]


def as_document(
    options: RougeOptions, scores: Scores, other: Scores | None, samples: int, seed: int
) -> dict[str, Any]:
    """Means, intervals and tests.

    Args:
        options: how the scores were computed.
        scores: of each document, one or more.
        other: of another system; None where there is none. With it there are two or more.
        samples: of the bootstrap, 1 or more.
        seed: of the bootstrap, 0 or more.

    Returns:
        The document, without what files were read.

    Raises:
        ValueError: there is one document, and two systems.
        ModuleNotFoundError: there are two systems, and scipy is not installed.
    """
    means = iter(intervals(_columns(scores, STATISTICS), samples, seed))
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "documents": len(scores),
        "settings": {
            "stem": options.stem,
            "bytes": options.max_bytes,
            "sentences": options.sentences,
            "statistic": options.statistic,
            "bootstrap": samples,
            "seed": seed,
            "level": LEVEL,
        },
    }
    for kind in TYPES:
        document[kind] = {name: vars(next(means)) for name in STATISTICS}
    document["compared"] = None
    if other is not None:
        document["compared"] = _compared(options.statistic, scores, other, samples, seed)
    return document


def _compared(
    statistic: str, scores: Scores, other: Scores, samples: int, seed: int
) -> dict[str, dict[str, float]]:
    first, second = (_columns(system, [statistic]) for system in (scores, other))
    compared = {}
    found = differences(first, second, samples, seed)
    for place, (kind, difference) in enumerate(zip(TYPES, found, strict=True)):
        columns = first[:, place].tolist(), second[:, place].tolist()
        compared[kind] = {
            "value": float(second[:, place].mean()),
            "change": difference.change.value,
            "low": difference.change.low,
            "high": difference.change.high,
            "p_bootstrap": difference.p,
            "p_t_test": paired_t_test(*columns),
        }
    return compared


def _columns(scores: Scores, statistics: Sequence[str]) -> ndarray:
    """``(documents, types · statistics)``."""
    import numpy

    return numpy.array(
        [
            [getattr(document[kind], name) for kind in TYPES for name in statistics]
            for document in scores
        ]
    )


def per_document_lines(scores: Scores, other: Scores | None) -> str:
    """The scores of each document, a line of JSON each."""
    lines = []
    for number, document in enumerate(scores):
        line: dict[str, Any] = {"document": number, **_plain(document)}
        if other is not None:
            line["compared"] = _plain(other[number])
        lines.append(json.dumps(line) + "\n")
    return "".join(lines)


def _plain(document: Dictionary[str, Score]) -> dict[str, dict[str, float]]:
    return {kind: score._asdict() for kind, score in document.items()}


def as_table(document: Dictionary[str, Any]) -> str:
    """The document as lines of text."""
    settings = document["settings"]
    statistics = sorted(STATISTICS, key=lambda name: name != settings["statistic"])
    rows = [["", *("F1" if name == F1 else name for name in statistics)]]
    for kind in TYPES:
        cells = [_with_interval(document[kind][name]) for name in statistics]
        rows.append([NAMES[kind], *cells])
    title = f"{document['documents']} documents; percent [95 %], {_how(settings)}"
    lines = [title, text_table(rows)]
    compared = document["compared"]
    if compared is not None:
        rows = [["", "other", "change", "p (bootstrap)", "p (t-test)"]]
        for kind in TYPES:
            entry = compared[kind]
            change = {**entry, "value": entry["change"]}
            cells = [f"{entry['value']:.2f}", _with_interval(change, "+")]
            cells += [_p_text(entry[name]) for name in ("p_bootstrap", "p_t_test")]
            rows.append([NAMES[kind], *cells])
        lines += [f"compared with {document['compared_with']}, {settings['statistic']}:"]
        lines += [text_table(rows)]
    return "\n".join(lines) + "\n"


def _how(settings: Dictionary[str, Any]) -> str:
    how = ["stems" if settings["stem"] else "words as they are"]
    if settings["bytes"] is not None:
        how.append(f"cut after {settings['bytes']} bytes")
    if settings["sentences"] is not None:
        how.append(f"sentences by {settings['sentences']}")
    return ", ".join(how)


def _with_interval(entry: Dictionary[str, float], sign: str = "") -> str:
    value, low, high = (f"{entry[name]:{sign}.2f}" for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _p_text(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"
