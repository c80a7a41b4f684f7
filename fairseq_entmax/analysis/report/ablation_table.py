"""What a model loses without each of its heads: ``ablation.json`` of ``fairseq-entmax ablate``."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_entmax.head_names import Head, parse_heads
from fairseq_entmax.reasons import named, reason

FORMAT, VERSION = "fairseq-entmax-ablation", 1
LARGEST_FILE = 1 << 28
_NEEDED = ("change", "p", "p_holm")


class Ablation(NamedTuple):
    """One model without each of its heads in turn.

    Attributes:
        model: its name in the analysis.
        scores: name of a score, such as ``rouge1``, to each head that was removed alone, with
            ``change``, ``p`` and ``p_holm``, numbers.
    """

    model: str
    scores: dict[str, dict[Head, dict[str, float]]]


def read_ablations(
    paths: Sequence[str | os.PathLike[str]], analysis: dict[str, Any]
) -> list[Ablation]:
    """Read ablations of models of an analysis.

    Any score is taken that has a change with its p, whatever it is called.

    Args:
        paths: of ``ablation.json``, one for each model.
        analysis: the document, whose models, subset and languages they have to be of.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no ablation, of a model that the analysis does not have or that another
            file is of, or of other data; names the file.
    """
    read: list[Ablation] = []
    for path in paths:
        content = _parsed(path)
        try:
            name = _model_of(content, analysis)
            scores = _scores(content["removals"])
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"--ablation {path} is damaged: {reason(error)}") from None
        except ValueError as error:
            raise ValueError(f"--ablation {path}: {error}") from None
        if name in (one.model for one in read):
            raise ValueError(f"--ablation {path}: another file is of the model {name}, too")
        read.append(Ablation(name, scores))
    return read


def _parsed(path: str | os.PathLike[str]) -> dict[str, Any]:
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"--ablation {named(path)} does not exist or is no file: give the ablation.json that "
            f"fairseq-entmax ablate wrote"
        )
    content: Any = None
    if file.stat().st_size <= LARGEST_FILE:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            content = None
    kind = (content.get("format"), content.get("version")) if isinstance(content, dict) else None
    if kind != (FORMAT, VERSION):
        raise ValueError(
            f"--ablation {path} is not version {VERSION} of what 'fairseq-entmax ablate' writes: "
            f"give its ablation.json"
        )
    assert isinstance(content, dict)
    return content


def _model_of(content: dict[str, Any], analysis: dict[str, Any]) -> str:
    """The name of the model that an ablation is of; its data has to be that of the analysis."""
    for key in ("subset", "source_lang", "target_lang"):
        if content["data"][key] != analysis["data"][key]:
            raise ValueError(
                f"its {key} is {content['data'][key]}, and that of the analysis "
                f"{analysis['data'][key]}: give an ablation on the same data"
            )
    checkpoints = {model["checkpoint"]: str(model["name"]) for model in analysis["models"]}
    path = content["checkpoint"]
    real = {os.path.realpath(one): name for one, name in checkpoints.items()}
    name = checkpoints.get(path) or real.get(os.path.realpath(path))
    if name is None:
        raise ValueError(
            f"it is of {path}, and the analysis of {', '.join(checkpoints)}: give an ablation of "
            f"one of these"
        )
    return name


def _scores(removals: Any) -> dict[str, dict[Head, dict[str, float]]]:
    scores: dict[str, dict[Head, dict[str, float]]] = {}
    for removal in removals:
        heads = {head for name in removal["heads"] for head in parse_heads(name)}
        for score, numbers in removal.items():
            if len(heads) == 1 and isinstance(numbers, dict) and set(_NEEDED) <= set(numbers):
                (head,) = heads
                scores.setdefault(score, {})[head] = {
                    key: _number(score, numbers[key]) for key in _NEEDED
                }
    return scores


def _number(score: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a {score} has {value!r:.40} where a number is to be")
    return float(value)
