"""The table of models that write summaries: ROUGE with intervals, and what each has more.

rouge_table.py first.json second.json ... --names copy no-copy ... > rouge.tsv

The files are what fairseq-entmax rouge --output wrote of the first model with itself or each other
model to --compare it with.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

TYPES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
COLUMNS = ("model", *TYPES.values(), "change of ROUGE-L", "95 % interval", "p")


def row_of(name: str, document: dict[str, Any]) -> list[str]:
    """The cells of a model; of the first one, with nothing to compare, its own interval."""
    scores = document["compared"]
    if scores is None:
        statistic = document["settings"]["statistic"]
        scores = {kind: document[kind][statistic] for kind in TYPES}
        own = scores["rougeL"]
        change = ["", f"{own['low']:.2f} to {own['high']:.2f}", ""]
    else:
        own = scores["rougeL"]
        interval = f"{own['low']:+.2f} to {own['high']:+.2f}"
        change = [f"{own['change']:+.2f}", interval, f"{own['p_bootstrap']:.3f}"]
    return [name, *(f"{scores[kind]['value']:.2f}" for kind in TYPES), *change]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="of fairseq-entmax rouge")
    parser.add_argument("--names", nargs="+", required=True, help="of the models")
    options = parser.parse_args(arguments)
    print("\t".join(COLUMNS))
    for name, path in zip(options.names, options.files, strict=True):
        print("\t".join(row_of(name, json.loads(path.read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
