"""The results of an ablation: computed from the scores, as JSON, and as tables.

``ablation.json``, version 1::

    {"format": "fairseq-entmax-ablation", "version": 1,
     "checkpoint": "…/checkpoint_best.pt",
     "data": {"path": "…", "subset": "test", "source_lang": "es", "target_lang": "en",
              "sentences": 1000, "target_tokens": 39444},        (with end of sentence)
     "settings": {…},                                            (what the scores depend on)
     "significance": {"bootstrap": 1000, "seed": 1, "bleu_signature": "nrefs:1|…"},
     "unchanged": {"loss": 2.41, "bleu": 30.2},
     "removals": [
       {"heads": ["encoder-self:0.1"],
        "loss": {"value": 2.5, "change": 0.09, "p": 0.001, "p_holm": 0.024},
        "bleu": {"value": 29.8, "change": -0.4, "p": 0.02, "p_holm": 0.4}}, …]}

``loss`` is in nats a target token, over all tokens of the data set; its p is of a two-sided
paired t-test over sentences, of their mean loss a token. ``bleu`` is in percent; its p is of
sacreBLEU's paired bootstrap. ``p_holm`` is corrected for all removals in the file by Holm's
method. What was not asked for is null. The removals are sorted by harm, worst first: by the
change of loss, else of BLEU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairseq_entmax.analysis.ablation import significance
from fairseq_entmax.analysis.ablation.removal import Scorer, SentenceScores, text_of
from fairseq_entmax.analysis.arguments import BLEU, LOSS
from fairseq_entmax.text_table import text_table

FORMAT, VERSION = "fairseq-entmax-ablation", 1
# What tests are read at most often
LEVEL = 0.05
_FIELDS = ("value", "change", "p", "p_holm")
_HEADINGS = {LOSS: "loss", BLEU: "BLEU"}
_DIGITS = {LOSS: 4, BLEU: 2}

Names = tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """One score of the unchanged model and of each removal.

    Attributes:
        unchanged: the unchanged model's.
        removals: names of the heads to value, change, p and p_holm.
    """

    unchanged: float
    removals: dict[Names, dict[str, float]]


@dataclass(frozen=True)
class Comparisons:
    """Both scores; None for one that was not asked for.

    Attributes:
        loss, bleu: the scores.
        significance: how the tests were made.
    """

    loss: Comparison | None
    bleu: Comparison | None
    significance: dict[str, Any]


def compare(
    finished: Mapping[Names, SentenceScores], scorer: Scorer, metric: Any, samples: int, seed: int
) -> Comparisons:
    """Hold every removal against the unchanged model.

    Args:
        finished: names of removed heads to scores; without names the unchanged model's.
        scorer: for the references and the lengths of the targets.
        metric: of :func:`significance.bleu_metric`; None without BLEU.
        samples: of the bootstrap.
        seed: of the bootstrap.
    """
    names = sorted(name for name in finished if name)
    loss = bleu = None
    tests: dict[str, Any] = {}
    if finished[()].nll is not None:
        loss = _compare_losses(finished, names, scorer.target_tokens)
    if metric is not None:
        systems = [finished[name].translations or [] for name in [(), *names]]
        result = significance.paired_bootstrap(systems, scorer.references, metric, samples, seed)
        bleu = _comparison(names, result.scores, result.p_values)
        tests = {"bootstrap": samples, "seed": seed, "bleu_signature": result.signature}
    return Comparisons(loss, bleu, tests)


def _compare_losses(
    finished: Mapping[Names, SentenceScores], names: list[Names], tokens: list[int]
) -> Comparison:
    nll = [finished[name].nll or [] for name in [(), *names]]
    means = [[loss / number for loss, number in zip(row, tokens, strict=True)] for row in nll]
    p_values = [significance.paired_t_test(means[0], row) for row in means[1:]]
    return _comparison(names, [sum(row) / sum(tokens) for row in nll], p_values)


def _comparison(names: list[Names], values: list[float], p_values: list[float]) -> Comparison:
    unchanged, *others = values
    rows = zip(others, p_values, significance.holm(p_values), strict=True)
    entries = [
        dict(zip(_FIELDS, (value, value - unchanged, p, corrected), strict=True))
        for value, p, corrected in rows
    ]
    return Comparison(unchanged, dict(zip(names, entries, strict=True)))


def document(
    checkpoint: str, data: dict[str, Any], settings: dict[str, Any], results: Comparisons
) -> dict[str, Any]:
    """The content of ``ablation.json``.

    Args:
        checkpoint: where the model is from.
        data: the entry ``data``.
        settings: the entry ``settings``.
        results: with one score or both.
    """
    loss, bleu = results.loss, results.bleu
    names = (loss or bleu or Comparison(0.0, {})).removals
    removals: list[dict[str, Any]] = [
        {
            "heads": list(name),
            "loss": loss and loss.removals[name],
            "bleu": bleu and bleu.removals[name],
        }
        for name in names
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "checkpoint": checkpoint,
        "data": data,
        "settings": settings,
        "significance": results.significance,
        "unchanged": {"loss": loss and loss.unchanged, "bleu": bleu and bleu.unchanged},
        "removals": sorted(removals, key=_harm, reverse=True),
    }


def _harm(removal: dict[str, Any]) -> float:
    change: float = removal["loss"]["change"] if removal["loss"] else -removal["bleu"]["change"]
    return change


def as_table(document: Mapping[str, Any]) -> str:
    """The content of ``ablation.json`` as lines of text."""
    scores = [score for score in (LOSS, BLEU) if document["unchanged"][score] is not None]
    rows = [["removed"], ["nothing"]]
    for score in scores:
        rows[0] += [_HEADINGS[score], "change", "p", "p (Holm)"]
        rows[1] += [f"{document['unchanged'][score]:.{_DIGITS[score]}f}", "", "", ""]
    for removal in document["removals"]:
        cells = [text_of(removal["heads"])]
        for score in scores:
            entry, digits = removal[score], _DIGITS[score]
            cells += [f"{entry['value']:.{digits}f}", f"{entry['change']:+.{digits}f}"]
            cells += [_p_text(entry["p"]), _p_text(entry["p_holm"])]
        rows.append(cells)
    return "\n".join([text_table(rows), *_remarks(document)])


def _remarks(document: Mapping[str, Any]) -> list[str]:
    """That the bootstrap cannot find anything significant, where it is so."""
    removals, samples = len(document["removals"]), document["significance"].get("bootstrap")
    if samples is None or removals / (samples + 1) <= LEVEL:
        return []
    return [
        f"p (Holm) of BLEU is never below {removals / (samples + 1):.3f} with {removals} removals "
        f"and {samples} resamples: --bootstrap {math.ceil(removals / LEVEL) - 1} resolves {LEVEL} "
        f"without scoring anything anew"
    ]


def _p_text(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def as_tsv(document: Mapping[str, Any]) -> str:
    """The same with all digits and tabs between columns; unknown values are empty."""
    columns = [(score, field) for score in (LOSS, BLEU) for field in _FIELDS]
    lines = ["\t".join(["removed", *(f"{score}_{field}" for score, field in columns)])]
    unchanged = {score: {"value": value} for score, value in document["unchanged"].items()}
    for removal in [{"heads": [], **unchanged}, *document["removals"]]:
        values = [(removal[score] or {}).get(field) for score, field in columns]
        cells = ["" if value is None else repr(value) for value in values]
        lines.append("\t".join([text_of(removal["heads"]), *cells]))
    return "\n".join(lines) + "\n"
