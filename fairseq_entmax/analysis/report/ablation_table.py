"""The results of ``fairseq-entmax ablate``, read from ``ablation.json`` into an analysis."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_entmax.analysis.arguments import LOSS
from fairseq_entmax.analysis.measures.base import Number
from fairseq_entmax.error_messages import reason
from fairseq_entmax.head_names import Head, parse_heads

FORMAT, VERSION = "fairseq-entmax-ablation", 1
# A change is marked as significant if Holm's p is below this
LEVEL = 0.05
# Any other score is shown by its own name
_TITLES = {"bleu": "BLEU", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}

# Head -> the change of each score, and the scores that change significantly
Removed = dict[Head, tuple[dict[str, float], list[str]]]


def with_ablations(
    analysis: dict[str, Any], paths: Sequence[str | os.PathLike[str]]
) -> dict[str, Any]:
    """Return an analysis with the change of each score when a head is removed.

    Heads that were removed alone get ``ablation`` (score -> change) and ``significant`` (a list of
    scores); the document's numbers get ``ablation-SCORE``."""
    removed: dict[str, Removed] = {}
    units: dict[str, str] = {}
    for path in paths:
        content = _parsed(path)
        try:
            name = _model_of(content, analysis)
            heads = _changes(content["removals"])
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"--ablation {path} is damaged: {reason(error)}") from None
        except ValueError as error:
            raise ValueError(f"--ablation {path}: {error}") from None
        if name in removed:
            raise ValueError(f"--ablation {path}: another file is also of the model {name}")
        removed[name], units[name] = heads, content.get("loss_unit", "nats a token")
    return joined(analysis, removed, units)


def joined(
    analysis: dict[str, Any], removed: dict[str, Removed], units: dict[str, str] | None = None
) -> dict[str, Any]:
    """Do the same with removals that have been read, by the names of their models."""
    analysis = {**analysis, "models": copy.deepcopy(analysis["models"])}
    scores: dict[str, None] = {}
    for model in analysis["models"]:
        heads = removed.get(model["name"], {})
        scores |= dict.fromkeys(score for changes, _ in heads.values() for score in changes)
        for layer in model["attentions"]:
            for head in layer["heads"]:
                place = Head(layer["attention"], layer["layer"], head["head"])
                changes, significant = heads.get(place, ({}, []))
                if changes:
                    head |= {"ablation": changes, "significant": significant}
    numbers = [*analysis["numbers"], *(_number(score, units or {}).as_json() for score in scores)]
    return {**analysis, "numbers": numbers}


def harm(head: dict[str, Any], score: str) -> float:
    """How much worse a score is without a head; below 0 if better. Only a loss rises with harm."""
    change: float = head["ablation"][score]
    return change if score == LOSS else -change


def _number(score: str, units: dict[str, str]) -> Number:
    title = _TITLES.get(score, score)
    of_models = ", ".join(f"{name}: {unit}" for name, unit in units.items())
    unit = f" ({of_models})" if score == LOSS and units else ""
    return Number(
        f"ablation-{score}",
        f"Δ {title} without it",
        f"the change of the {title}{unit} if only this head is removed (fairseq-entmax ablate), "
        f"{'above' if score == LOSS else 'below'} 0 if the model is worse without it; an asterisk "
        f"marks p below {LEVEL} after Holm's correction",
        ("ablation", score),
        is_main=True,
        largest=None,
        least=None,
    )


def _parsed(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        kind = (content["format"], content["version"])
    except (ValueError, TypeError, KeyError, RecursionError):
        kind = None
    if kind != (FORMAT, VERSION):
        raise ValueError(
            f"--ablation {path} is not version {VERSION} of what 'fairseq-entmax ablate' writes: "
            f"give its ablation.json"
        )
    return dict(content)


def _model_of(content: dict[str, Any], analysis: dict[str, Any]) -> str:
    """The name of the ablated model; ValueError if model or data are not those of the analysis."""
    for key in ("subset", "source_lang", "target_lang", "sentences"):
        if content["data"][key] != analysis["data"][key]:
            what = "number of sentences" if key == "sentences" else key
            raise ValueError(
                f"its {what} is {content['data'][key]}, but that of the analysis is "
                f"{analysis['data'][key]}: give an ablation on the same data"
            )
    name = next((one["name"] for one in analysis["models"] if _is_of(content, one)), None)
    if name is None:
        raise ValueError(
            f"it is of the weights that {content['checkpoint']} had then, but the analysis is of others, "
            f"{', '.join(model['checkpoint'] for model in analysis['models'])}: ablate and analyse the same checkpoint"
        )
    return str(name)


def _is_of(content: dict[str, Any], model: dict[str, Any]) -> bool:
    """Whether a model was ablated; a training that goes on writes other weights to the same path."""
    if "checkpoint_sha256" in model:
        same: bool = model["checkpoint_sha256"] == content["settings"]["checkpoint_sha256"]
        return same
    return os.path.realpath(model["checkpoint"]) == os.path.realpath(content["checkpoint"])


def _changes(removals: Any) -> Removed:
    found: Removed = {}
    for removal in removals:
        heads = {head for name in removal["heads"] for head in parse_heads(name)}
        if len(heads) != 1:
            continue
        scores = {
            score: numbers
            for score, numbers in removal.items()
            if isinstance(numbers, dict) and {"change", "p_holm"} <= set(numbers)
        }
        changes = {score: float(numbers["change"]) for score, numbers in scores.items()}
        significant = [name for name, numbers in scores.items() if numbers["p_holm"] < LEVEL]
        (head,) = heads
        found[head] = (changes, significant)
    return found
