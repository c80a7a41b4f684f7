"""The data of the report's page, taken from an analysis and made compact for a browser."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fairseq_entmax.analysis.document import rounded
from fairseq_entmax.analysis.document.maps import decoded, decoded_groups
from fairseq_entmax.analysis.document.summary import search_text
from fairseq_entmax.analysis.measures.base import Number, declared
from fairseq_entmax.analysis.report import agreement
from fairseq_entmax.analysis.report.in_short import in_short
from fairseq_entmax.analysis.report.model_table import model_columns
from fairseq_entmax.analysis.report.roles import COPY_HEAD, explanations, roles
from fairseq_entmax.attentions import ATTENTIONS

# Significant digits of the page's numbers: more than it shows, since it rounds them once more
DIGITS = 9
LEVELS = 255  # shades of a weight above zero
BLOCK = 1 << 20


def measures_of(analysis: dict[str, Any]) -> list[Number]:
    """The numbers that at least one head has, in the order of the analysis."""
    return [number for number in declared(analysis) if values_of(analysis, number)]


def values_of(analysis: dict[str, Any], number: Number) -> set[float]:
    values = {
        number.of(head, layer)
        for model in analysis["models"]
        for layer in model["attentions"]
        for head in layer["heads"]
    }
    return values - {None}


def first_measure(analysis: dict[str, Any]) -> str | None:
    """The name of the first number that differs between heads, else of the first, if any."""
    known = measures_of(analysis)
    telling = [number for number in known if len(values_of(analysis, number)) > 1]
    return next((number.name for number in [*telling, *known]), None)


def page_data(
    analysis: dict[str, Any], figures: Iterable[Any], charts: dict[str, Any]
) -> dict[str, Any]:
    """The JSON that the page's script reads, without the weights of maps, which are separate."""
    measures = measures_of(analysis)
    shown = ("name", "title", "meaning", "group", "range")
    data = {
        "data": analysis["data"],
        "search": search_text(analysis["search"]) if "search" in analysis else None,
        "attentions": list(ATTENTIONS),
        "measure": first_measure(analysis),
        "measures": [
            {**{key: getattr(one, key) for key in shown}, "isMain": one.is_main} for one in measures
        ],
        "models": [{"name": model["name"]} for model in analysis["models"]],
        "inShort": in_short(analysis),
        "modelColumns": model_columns(analysis),
        "layers": [
            {
                "model": number,
                "attention": layer["attention"],
                "layer": layer["layer"],
                "mapping": layer["mapping"],
                "heads": [_head(head, layer, analysis, measures) for head in layer["heads"]],
            }
            for number, model in enumerate(analysis["models"])
            for layer in model["attentions"]
        ],
        "sentences": [_sentence(entry) for entry in analysis["maps"]],
        "roleWords": explanations(analysis["settings"]),
        "agreement": [one._asdict() for one in agreement.correlations(analysis)],
    }
    drawn = [
        {"name": one.name, "title": one.title, "caption": one.caption, "spec": one.for_page()}
        for one in figures
    ]
    return {**rounded(data, DIGITS), "figures": drawn, "charts": charts}


def _head(
    head: dict[str, Any],
    layer: dict[str, Any],
    analysis: dict[str, Any],
    measures: Sequence[Number],
) -> dict[str, Any]:
    return {
        "head": head["head"],
        "values": {measure.name: measure.of(head, layer) for measure in measures},
        "errors": head.get("standard_errors", {}),
        "significant": [f"ablation-{score}" for score in head.get("significant", ())],
        "copies": copies(head, layer),
        "roles": role_words(head, layer, analysis),
        "offsets": head["offsets"],
        "histogram": head["density_histogram"],
    }


def copies(head: dict[str, Any], layer: dict[str, Any]) -> bool:
    """Whether the model copies words by this head of the layer."""
    return head["head"] in layer.get("copy_heads", [])


def role_words(head: dict[str, Any], layer: dict[str, Any], analysis: dict[str, Any]) -> list[str]:
    words = roles(head, analysis, layer["attention"], layer.get("copy_chance"))
    return [COPY_HEAD] * copies(head, layer) + words


def _sentence(entry: dict[str, Any]) -> dict[str, Any]:
    """The tokens of a sentence, and where each attention starts in the weights and groups."""
    start = grouped = 0
    models: list[list[dict[str, Any]]] = []
    for attentions in entry["models"]:
        models.append([])
        for item in attentions:
            sizes = dict(zip(("heads", "queries", "keys"), item["shape"], strict=True))
            place = {"attention": item["attention"], "layer": item["layer"], **sizes}
            models[-1].append({**place, "start": start})
            start += math.prod(item["shape"])
            if "groups" in item:
                models[-1][-1]["groups"] = grouped
                grouped += math.prod(item["shape"])
    return {
        **{key: entry[key] for key in ("sentence", "source", "queries", "targets")},
        "model": entry.get("model"),
        "sourceText": joined_text(entry["source"]),
        "targetText": joined_text(entry["targets"]),
        "models": models,
    }


def joined_text(tokens: Sequence[str]) -> str:
    """Join subwords into the original text, without the end of sentence."""
    words = [token for token in tokens if token != "</s>"]
    if any(token.startswith("▁") for token in words):
        return "".join(words).replace("▁", " ").strip()
    return (" ".join(words) + " ").replace("@@ ", "").strip()


def weights_block(entry: dict[str, Any]) -> str:
    """The weights of a sentence's maps, a byte each, in the order of ``entry``: base64 of gzip."""
    parts = [
        # In blocks, because each needs several wider copies in memory
        shades(weights[start : start + BLOCK]).tobytes()
        for attentions in entry["models"]
        for item in attentions
        for weights in [decoded(item).reshape(-1)]
        for start in range(0, weights.size, BLOCK)
    ]
    return _block(parts)


def groups_block(entry: dict[str, Any]) -> str | None:
    """Likewise the groups of equal weights of a sentence's maps, a byte per weight, for attentions
    and layers that have groups; None if none has."""
    parts = [
        groups.tobytes()
        for attentions in entry["models"]
        for item in attentions
        for groups in [decoded_groups(item)]
        if groups is not None
    ]
    return _block(parts) if parts else None


def _block(parts: Sequence[bytes]) -> str:
    # Without a timestamp, the same analysis gives the same page
    return base64.b64encode(gzip.compress(b"".join(parts), 9, mtime=0)).decode("ascii")


def shades(weights: np.ndarray) -> np.ndarray:
    """Encode weights in [0, 1] as bytes, ``round(255 sqrt(weight))``; only exact zeros become 0.

    Decoded as ``(byte / 255)^2``, a weight is off by at most ``sqrt(weight) / 255 + 1 / 510^2``."""
    bytes_ = np.rint(LEVELS * np.sqrt(weights.astype(np.float32)))
    return np.where(weights > 0, bytes_.clip(1, LEVELS), 0).astype(np.uint8)


def heads_csv(analysis: dict[str, Any]) -> str:
    """A CSV line per head: its place, mapping, roles, and every number that is not in a group."""
    measures = [measure for measure in measures_of(analysis) if not measure.group]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    names = [measure.name for measure in measures]
    table.writerow(["model", "attention", "layer", "head", "mapping", "roles", *names])
    for model in analysis["models"]:
        for layer in model["attentions"]:
            for head in layer["heads"]:
                place = [model["name"], layer["attention"], layer["layer"], head["head"]]
                roles = "; ".join(role_words(head, layer, analysis))
                values = [measure.of(head, layer) for measure in measures]
                table.writerow([*place, layer["mapping"], roles, *values])
    return text.getvalue()
