"""Reach verdicts on the papers' claims from a record alone.

PYTHONPATH=examples/tools python -m claims RECORD                  # RECORD/claims.md
PYTHONPATH=examples/tools python -m claims RECORD --output FOLDER  # in another folder
PYTHONPATH=examples/tools python -m claims RECORD --runs bible_es_en/softmax-large-seed1 --output FOLDER
                                       # the analysis of one or more runs, for fairseq-entmax report
PYTHONPATH=examples/tools python -m claims RECORD --figure FILE.svg  # loss against density
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from messages import PROGRAM, one_sentence

from claims.record import PACKED, read_object, read_record
from fairseq_entmax.files import write_together

TABLE, ANALYSIS = "claims.md", "analysis.json"


def write_documents(record: Path, names: Sequence[str], folder: Path) -> list[Path]:
    """Write one analysis of runs of a corpus, named ``CORPUS/RUN``, and the ablation of each."""
    documents = [read_object(record / f"{name}{PACKED}") for name in names]
    analyses = [one["analysis"] for one in documents]
    if len({json.dumps(one["data"], sort_keys=True) for one in analyses}) > 1:
        raise ValueError("option --runs names runs on different data: give runs of one corpus")
    models = [{**one["analysis"]["models"][0], "name": one["run"]} for one in documents]
    numbers = {number["name"]: number for one in analyses for number in one["numbers"]}
    together = {**analyses[0], "models": models, "numbers": list(numbers.values())}
    contents = {folder / ANALYSIS: together}
    for one in documents:
        if one.get("ablation"):
            contents[folder / f"{one['run']}.ablation.json"] = one["ablation"]
    folder.mkdir(parents=True, exist_ok=True)
    texts = {path: json.dumps(one, ensure_ascii=False) for path, one in contents.items()}
    write_together({path: f"{text}\n".encode() for path, text in texts.items()})
    return list(contents)


def main(arguments: list[str] | None = None) -> None:
    os.environ.setdefault(PROGRAM, "claims")
    parser = argparse.ArgumentParser(prog="claims", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("record", type=Path, help="folder that claims.sh wrote")
    parser.add_argument("--output", type=Path, help="folder to write to (default: the record's)")
    parser.add_argument(
        "--runs",
        metavar="LIST",
        help="instead of verdicts, write analysis.json of these runs, comma-separated CORPUS/RUN",
    )
    parser.add_argument(
        "--figure", type=Path, help="instead of verdicts, draw loss against density as SVG or PNG"
    )
    options = parser.parse_args(arguments)
    folder = options.output or options.record
    with one_sentence():
        if options.runs:
            print(*write_documents(options.record, options.runs.split(","), folder), sep="\n")
            return
        if options.figure:
            from claims.figure import draw

            draw(read_record(options.record)[1], options.figure)
            return
        # Needs scipy, from the extra "analysis"
        from claims.table import markdown

        folder.mkdir(parents=True, exist_ok=True)
        write_together({folder / TABLE: markdown(*read_record(options.record)).encode()})
        print(folder / TABLE)


if __name__ == "__main__":
    main()
