"""Analyses out of a record, in the form of ``analysis.json``: what the report draws, without any training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs import write_whole

from claims.checks import PACKED, read_object

ANALYSIS = "analysis.json"
# What models of one analysis have in common
COMMON = ("format", "version", "data", "of", "search", "annotations")
# Of how many sentences: analyze takes as many as make a model's second digit stand
AS_NEEDED = ("relevance_sentences", "gradient_sentences")


def write_kept(record: Path, names: Sequence[str], folder: Path) -> list[Path]:
    """Write the analysis of some runs, and the ablation of each that has one.

    Args:
        record: its folder.
        names: each ``CORPUS/RUN``, such as ``bible_es_en/softmax-large-seed1``; of one corpus.
        folder: for ``analysis.json`` and ``RUN.ablation.json``; made where it is missing.

    Returns:
        The files' paths, the analysis first.

    Raises:
        ValueError: the record has no such run, a file is there already, or the runs were not analysed alike.
    """
    documents = [_document(record, name) for name in names]
    texts = {folder / ANALYSIS: joined([one["analysis"] for one in documents], names)}
    for one in documents:
        if one.get("ablation"):
            texts[folder / f"{one['run']}.ablation.json"] = one["ablation"]
    for path in texts:
        if path.exists():
            raise ValueError(f"option --output: {path} exists: choose another folder")
    for path, content in texts.items():
        write_whole(path, f"{json.dumps(content, ensure_ascii=False)}\n")
    return list(texts)


def joined(analyses: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """One analysis with the models of several, each by the name of its run.

    Args:
        analyses: of one model each.
        names: theirs; the last part is the model's.

    Raises:
        ValueError: they are of different data, or were made with different settings.
    """
    first = analyses[0]
    for one, name in zip(analyses, names, strict=True):
        differing = [key for key in COMMON if one.get(key) != first.get(key)]
        differing += ["settings"] * (_asked(one) != _asked(first))
        if differing:
            raise ValueError(
                f"option --runs: {names[0]} and {name} were analysed with other {differing[0]}: "
                "give runs of one corpus"
            )
    models = [
        {**one["models"][0], "name": name.rpartition("/")[2]}
        for one, name in zip(analyses, names, strict=True)
    ]
    settings = [one["settings"] for one in analyses]
    least = {key: min(one[key] for one in settings) for key in AS_NEEDED if key in settings[0]}
    numbers = {number["name"]: number for one in analyses for number in one["numbers"]}
    together = {**first["settings"], **least}
    return {**first, "settings": together, "models": models, "numbers": list(numbers.values())}


def _asked(analysis: dict[str, Any]) -> dict[str, Any]:
    """The settings but for those that follow from the model."""
    return {key: value for key, value in analysis["settings"].items() if key not in AS_NEEDED}


def _document(record: Path, name: str) -> dict[str, Any]:
    corpus, _, run = name.partition("/")
    path = record / corpus / f"{run}{PACKED}"
    if not run or not path.is_file():
        there = sorted(one.parent.name + "/" + one.name for one in record.glob(f"*/*{PACKED}"))
        shown = ", ".join(one.removesuffix(PACKED) for one in there[:3]) or "none"
        raise ValueError(
            f"option --runs got '{name}', which {record} has not: give CORPUS/RUN, of its "
            f"{len(there)} runs: {shown}{', …' if len(there) > 3 else ''}"
        )
    return read_object(path)
