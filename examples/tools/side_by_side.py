"""Compare the scores of models, and tell which differences are significant.

side_by_side.py runs/stock-10epochs runs/entmax-10epochs --names stock entmax > scores.tsv

A run's folder has test.hyp, test.ref and scores.txt. p, which is two-sided, comes from
sacreBLEU's approximate randomization of BLEU against the first model, with 1,000 trials.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from messages import one_sentence
from sacrebleu.metrics import BLEU
from translations import lines_of, score_of

from fairseq_entmax.analysis.ablation.results import bleu_test

TRIALS, SEED = 1000, 12345  # sacreBLEU's own seed
COLUMNS = ("model", "BLEU", "change", "p", "chrF2")


def p_values(
    hypotheses: Sequence[list[str]], references: list[str], language: str = ""
) -> list[float | None]:
    """For each model, how probable so large a difference from the first one is by chance.

    None for the first, and for one with the same score.
    """
    if len(hypotheses) < 2:
        return [None]
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    _, found, _ = bleu_test(hypotheses, references, BLEU(trg_lang=language), TRIALS, SEED)
    return [None, *(None if p == 1 else p for p in found)]  # 1 if the scores are equal


def table(runs: Sequence[Path], names: Sequence[str], language: str) -> list[list[str]]:
    references = lines_of(runs[0] / "test.ref")
    if any(lines_of(run / "test.ref") != references for run in runs):
        raise ValueError("the models were scored on different test sets: run evaluate.sh again")
    chances = p_values([lines_of(run / "test.hyp") for run in runs], references, language)
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
    parser.add_argument("--target", default="", help="language, for sacreBLEU's tokeniser")
    options = parser.parse_args(arguments)
    with one_sentence():
        for row in table(options.runs, options.names, options.target):
            print("\t".join(row))


if __name__ == "__main__":
    main()
