"""The table of summarisation models: ROUGE, and each model's change from the first one.

rouge_table.py first.json second.json ... --names copy no-copy ... > rouge.tsv

Each file is the JSON of fairseq-entmax rouge for the first model: the first file without --compare,
the others with another model to --compare it with.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

TYPES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
COLUMNS = ("model", *TYPES.values(), "change of ROUGE-L", "95 % interval", "p")


def row_of(name: str, document: dict[str, Any]) -> list[str]:
    """The cells of a model; the first one has no change, and shows the interval of its ROUGE-L."""
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
    parser.add_argument("files", type=Path, nargs="+", help="JSON of fairseq-entmax rouge")
    parser.add_argument("--names", nargs="+", required=True, help="names of the models")
    options = parser.parse_args(arguments)
    print("\t".join(COLUMNS))
    for name, path in zip(options.names, options.files, strict=True):
        print("\t".join(row_of(name, json.loads(path.read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
