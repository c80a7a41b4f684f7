"""Attention maps as files: one head of each model on a sentence, or all of its heads in small."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from fairseq_entmax.analysis.groups import decoded_groups
from fairseq_entmax.analysis.maps import decoded
from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.catalogue import Drawable
from fairseq_entmax.analysis.report.charts import Analysis, Figure, Row
from fairseq_entmax.analysis.report.drawings import (
    FLAT,
    MARKS,
    SMALL_WEIGHT,
    every_head_template,
    filled,
    map_template,
    map_values,
)
from fairseq_entmax.analysis.report.labels import in_lines
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF


class _Place(NamedTuple):
    """A layer of a model's attention on a sentence, with the numbers of its heads."""

    model: str
    item: Row
    heads: list[int]

    def map_of(self, head: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Weights and groups, each ``(queries, keys)``."""
        place = self.heads.index(head)
        groups = decoded_groups(self.item)
        return decoded(self.item)[place], None if groups is None else groups[place]


def maps(analysis: Analysis) -> Iterator[Drawable]:
    """``map_SENTENCE_ATTENTION_LAYER_HEAD`` and ``heads_SENTENCE_ATTENTION``.

    Each of all models that have the head, and of each alone. Usual is, of the first sentence
    and each attention, the head that is most confident over all models.
    """
    for attention in ATTENTIONS:
        usual = _most_confident(analysis, attention)
        for number, entry in enumerate(analysis["maps"]):
            places = _places(analysis, entry, attention)
            if not places:
                continue
            tag = f"{_sentence(analysis, entry)}_{attention}"
            for layer, head in sorted(
                {(one.item["layer"], h) for one in places for h in one.heads}
            ):
                name = f"map_{tag}_{layer}_{head}"
                having = [p for p in places if p.item["layer"] == layer and head in p.heads]
                yield from _drawables(
                    analysis,
                    name,
                    not number and (layer, head) == usual,
                    having,
                    partial(_map, entry, head),
                )
            yield from _drawables(analysis, f"heads_{tag}", False, places, partial(_heads, entry))


def _drawables(
    analysis: Analysis, name: str, is_usual: bool, places: Sequence[_Place], draw: partial[Figure]
) -> Iterator[Drawable]:
    yield Drawable(name, is_usual, partial(draw, name, places))
    models = charts.model_names(analysis)
    for suffix, model in charts.model_suffixes(models):
        own = [place for place in places if place.model == model]
        if own:
            yield Drawable(name + suffix, False, partial(draw, name + suffix, own))


def _sentence(analysis: Analysis, entry: Row) -> str:
    """Its number, with the model's where each has a text of its own."""
    model = entry.get("model")
    return str(entry["sentence"]) + f"by{model}" * (model is not None)


def _places(analysis: Analysis, entry: Row, attention: str) -> list[_Place]:
    found = []
    for model, items in zip(analysis["models"], entry["models"], strict=True):
        heads = {
            one["layer"]: [head["head"] for head in one["heads"]]
            for one in model["attentions"]
            if one["attention"] == attention
        }
        found += [
            _Place(model["name"], item, heads[item["layer"]])
            for item in sorted(items, key=lambda one: one["layer"])
            if item["attention"] == attention and heads[item["layer"]]
        ]
    return found


def _most_confident(analysis: Analysis, attention: str) -> tuple[int, int] | None:
    known: dict[tuple[int, int], list[float]] = {}
    for place, head in charts.heads_of(analysis):
        if place["attention"] == attention:
            values = known.setdefault((place["layer"], place["head"]), [])
            values.append(head["confidence"] or 0)
    return max(known, key=lambda key: (statistics.fmean(known[key]), key), default=None)


def tokens_of(entry: Row, attention: str) -> tuple[list[str], list[str]]:
    """Those that look, and those that are looked at; of cross-attention what is predicted."""
    down = {ENCODER_SELF: "source", CROSS: "targets"}.get(attention, "queries")
    across = "queries" if attention == DECODER_SELF else "source"
    return entry[down], entry[across]


def _map(entry: Row, head: int, name: str, places: Sequence[_Place]) -> Figure:
    attention, layer = places[0].item["attention"], places[0].item["layer"]
    queries, keys = tokens_of(entry, attention)
    where = charts.head_name(layer, head)
    panels = [place.model for place in places] if len(places) > 1 else [where]
    rows = [
        row
        for panel, place in zip(panels, places, strict=True)
        for row in map_rows(panel, *place.map_of(head), attention == DECODER_SELF)
    ]
    models = ", ".join(place.model for place in places)
    caption = (
        f"Attention of {where} ({attention}) of {models} on sentence {entry['sentence']}: rows "
        f"look at columns. Hatched is exactly 0.{_of_groups(rows)}"
    )
    values = map_values(panels, queries, keys, caption)
    spec = filled(map_template(), {**values, "rows": rows})
    title = f"Sentence {entry['sentence']}, {attention}, {where}"
    return Figure(name, title, caption, charts.Described(spec))


def _of_groups(rows: Sequence[Row]) -> str:
    has_boxes = any(row["to"] - row["from"] > 1 for row in rows)
    has_marks = any(row["mark"] is not None for row in rows)
    boxes = " A box is a run of neighbours of equal weight." * has_boxes
    return boxes + " The same mark in a row: equal weights apart." * has_marks


def _heads(entry: Row, name: str, places: Sequence[_Place]) -> Figure:
    attention = places[0].item["attention"]
    queries, keys = tokens_of(entry, attention)
    is_alone = len({place.model for place in places}) == 1
    panels, rows = [], []
    for place in places:
        layer = f"layer {place.item['layer']}"
        panels.append(layer if is_alone else f"{place.model} {layer}")
        for head in place.heads:
            own = map_rows(panels[-1], *place.map_of(head), attention == DECODER_SELF)
            rows += [{**row, "head": head} for row in own]
    caption = (
        f"Attention of every {attention} head on sentence {entry['sentence']}, layers below each "
        f"other, heads side by side. Hatched is exactly 0."
    )
    numbers = sorted({row["head"] for row in rows})
    there = {(row["panel"], row["head"]) for row in rows}
    # Vega-Lite fills the grid panel by panel: those behind a head that is not there would move up
    nothing = {"query": 0, "from": 0, "to": 0, "weight": None, "mark": None}
    wanted = ((panel, head) for panel in panels for head in numbers)
    rows += [{"panel": p, "head": h, **nothing} for p, h in wanted if (p, h) not in there]
    width, height = SMALL_WEIGHT * len(keys), SMALL_WEIGHT * len(queries)
    values = {
        **map_values(panels, queries, keys, caption),
        "lines": in_lines(panels, FLAT),
        "heads": numbers,
        "width": width,
        "height": height,
    }
    spec = filled(every_head_template(), {**values, "rows": rows})
    title = f"Sentence {entry['sentence']}, {attention}, every head"
    return Figure(name, title, caption, charts.Described(spec))


def map_rows(
    panel: str, weights: np.ndarray, groups: np.ndarray | None, is_causal: bool
) -> Iterator[Row]:
    """A row for each run of neighbours of equal weight, each key alone, and each exact zero.

    Args:
        panel: what stands above it.
        weights: ``(queries, keys)``.
        groups: of that shape, as :func:`fairseq_entmax.analysis.groups.numbered_groups` gives
            them; None where the mapping makes none.
        is_causal: whether a query does not see the keys behind it: of these there are no rows.
    """
    numbers = np.zeros(weights.shape, int) if groups is None else groups.astype(int)
    for query, (row, own) in enumerate(zip(weights, numbers, strict=True)):
        seen = query + 1 if is_causal else len(row)
        joined = (own[1:] == own[:-1]) & (own[1:] != 0)
        begins = [0, *(np.flatnonzero(~joined) + 1).tolist()]
        spans = list(zip(begins, [*begins[1:], len(row)], strict=True))
        firsts = [int(own[begin]) for begin, _ in spans if row[begin] > 0]
        apart = sorted({number for number in firsts if number and firsts.count(number) > 1})
        for begin, end in spans:
            if begin >= seen:
                continue
            number = int(own[begin])
            yield {
                "panel": panel,
                "query": query,
                "from": begin,
                "to": end,
                "weight": charts.rounded(float(row[begin])),
                "mark": apart.index(number) % len(MARKS) if number in apart else None,
            }
