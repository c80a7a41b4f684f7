"""Verdicts on the papers' claims, from a record alone.

PYTHONPATH=examples/tools python -m claims RECORD                  # RECORD/claims.md and findings.json
PYTHONPATH=examples/tools python -m claims RECORD --output FOLDER  # in another folder
PYTHONPATH=examples/tools python -m claims RECORD --check          # fails where claims.md says otherwise
PYTHONPATH=examples/tools python -m claims RECORD --runs bible_es_en/softmax-large-seed1 --output FOLDER
                                       # the analysis of a run, or of some, for fairseq-entmax report
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

from jobs import write_whole
from messages import PROGRAM, one_sentence

from claims.kept import write_kept

TABLE, FINDINGS = "claims.md", "findings.json"


def require_scipy() -> None:
    """Do nothing where scipy is installed.

    Raises:
        ValueError: it is not; says how to get it.
    """
    if find_spec("scipy") is None:
        raise ValueError(
            "the tests of significance need scipy, which is not installed: run pip install "
            "'fairseq-entmax[analysis]'"
        )


def check(path: Path, text: str) -> None:
    """Do nothing where a file has this text.

    Raises:
        ValueError: it has another; the message names the first line that differs.
    """
    found = path.read_text(encoding="utf-8").splitlines()
    for number, (one, other) in enumerate(zip(found, text.splitlines(), strict=False), start=1):
        if one != other:
            raise ValueError(f"{path}, line {number}, is not what the record says: '{other[:200]}'")
    if len(found) != len(text.splitlines()):
        raise ValueError(f"{path} has {len(found)} lines, and the record {len(text.splitlines())}")


def main(arguments: list[str] | None = None) -> None:
    os.environ.setdefault(PROGRAM, "claims")
    parser = argparse.ArgumentParser(prog="claims", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("record", type=Path, help="folder that claims.sh wrote")
    parser.add_argument("--output", type=Path, help="folder to write to; without it the record's")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where claims.md says otherwise"
    )
    parser.add_argument(
        "--runs",
        metavar="LIST",
        help="in the place of verdicts the analysis of these runs, CORPUS/RUN with commas between them, "
        "as analysis.json in the folder of --output, which fairseq-entmax report draws",
    )
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.runs:
            if options.output is None or options.check:
                raise ValueError("option --runs needs --output FOLDER, and no --check")
            for path in write_kept(options.record, options.runs.split(","), options.output):
                print(path)
            return
        require_scipy()
        from claims.record import read_record
        from claims.table import as_text, claims_document, judged, markdown

        record = read_record(options.record)
        findings = judged(record)
        folder = options.output or options.record
        text = markdown(record, findings)
        if options.check:
            check(folder / TABLE, text)
            return
        document = as_text(claims_document(record, findings))
        write_whole(folder / TABLE, text)
        write_whole(folder / FINDINGS, document)
        print(folder / TABLE)


if __name__ == "__main__":
    main()
