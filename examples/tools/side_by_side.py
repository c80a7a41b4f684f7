"""Compare the scores of models, and tell which differences are significant.

side_by_side.py runs/stock-10epochs runs/entmax-10epochs --names stock entmax > scores.tsv

A run's folder has test.hyp, test.ref and scores.txt. p comes from a paired bootstrap of BLEU against
the first model, with 1,000 samples of the test sentences. It is two-sided, as in rouge_table.py;
sacreBLEU's own is about half of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy
from messages import one_sentence
from sacrebleu.metrics import BLEU
from translations import lines_of, score_of

SAMPLES, SEED = 1000, 1
COLUMNS = ("model", "BLEU", "change", "p", "chrF2")


def p_values(hypotheses: Sequence[list[str]], references: list[str]) -> list[float | None]:
    """For each model, how probable so large a difference from the first one is by chance.

    None for the first, and for one with the same score.
    """
    bleu, number = BLEU(references=[references]), len(references)
    draws = numpy.random.default_rng(SEED).multinomial(number, [1 / number] * number, SAMPLES)
    draws = numpy.vstack([numpy.ones_like(draws[:1]), draws])  # all sentences, then the samples
    scores = [
        [bleu._compute_score_from_stats(list(sums)).score for sums in draws @ statistics]
        for statistics in (bleu._extract_corpus_statistics(one, None) for one in hypotheses)
    ]
    whole, *samples = (numpy.array(scores) - scores[0]).T
    is_as_far = numpy.abs(samples - numpy.mean(samples, axis=0)) >= numpy.abs(whole)
    p = (is_as_far.sum(axis=0) + 1) / (SAMPLES + 1)
    return [float(one) if change else None for one, change in zip(p, whole, strict=True)]


def table(runs: Sequence[Path], names: Sequence[str]) -> list[list[str]]:
    references = lines_of(runs[0] / "test.ref")
    if any(lines_of(run / "test.ref") != references for run in runs):
        raise ValueError("the models were scored on different test sets: run evaluate.sh again")
    chances = p_values([lines_of(run / "test.hyp") for run in runs], references)
    scores = [[score_of(m, run / "scores.txt") for m in ("BLEU", "chrF2")] for run in runs]
    rows = [list(COLUMNS)]
    for name, (bleu, chrf), chance in zip(names, scores, chances, strict=True):
        change = f"{float(bleu) - float(scores[0][0]):+.2f}" if len(rows) > 1 else ""
        rows.append([name, bleu, change, "" if chance is None else f"{chance:.3f}", chrf])
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--names", nargs="+", required=True, help="names of the models")
    options = parser.parse_args(arguments)
    with one_sentence():
        for row in table(options.runs, options.names):
            print("\t".join(row))


if __name__ == "__main__":
    main()
