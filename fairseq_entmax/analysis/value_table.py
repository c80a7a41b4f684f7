"""The values of a checkpoint's heads, such as alpha, as data and as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairseq_entmax.analysis import head_order
from fairseq_entmax.checkpoints import updates_of
from fairseq_entmax.models.checkpoint_model import CheckpointModel
from fairseq_entmax.text_table import text_table

TITLES = {
    "alpha": "alpha of each head (1 = softmax, 2 = sparsemax; learned unless marked 'fixed')",
    "tv": "tv, the strength of total variation, of each head (learned unless marked 'fixed')",
    "oscar": "oscar, the strength of clustering, of each head (learned unless marked 'fixed')",
    "p": "p of each head (2 = sparsemax; learned unless marked 'fixed')",
}


@dataclass(frozen=True)
class LayerValues:
    """The head values of one attention in one layer.

    ``values`` maps a name, such as ``alpha``, to a number per head (None for heads without one), or
    to a single number if all heads share a learned one. ``are_learned`` says which are learned."""

    attention: str
    layer: int
    mapping: str
    learned: tuple[str, ...]
    heads: int
    values: dict[str, list[float | None]]
    are_learned: dict[str, list[bool]]
    risen: float = 1.0  # from softmax, 0, to the mapping itself, 1


def model_values(model: CheckpointModel) -> list[LayerValues]:
    """Return the head values of a checkpoint of this package or of the stock fairseq model."""
    rows = []
    for one in model.attentions:
        row = LayerValues(one.attention, one.layer, str(one.mapping), (), one.heads, {}, {})
        mapping = model.mapping(one)
        if mapping is not None:
            row = replace(row, learned=mapping.learned, risen=mapping.risen)
            for name, tensor in mapping.head_values().items():
                is_shared = len(tensor) == 1 and name in row.learned
                numbers = (tensor if is_shared else tensor.expand(one.heads)).tolist()
                row.values[name] = [None if math.isnan(number) else number for number in numbers]
                learns = mapping.learns(name)
                row.are_learned[name] = learns * (len(numbers) // len(learns))
        rows.append(row)
    return rows


def rank_correlations(model: CheckpointModel, rows: list[LayerValues]) -> dict[str, str]:
    """For each kind of learned value, a line on how far the heads keep their initial order."""
    update = updates_of(model.state)
    lines = {}
    for name in dict.fromkeys(name for row in rows for name in row.learned):
        present: dict[str, dict[str, list[float | None]]] = {}
        for row in rows:
            if name in row.learned:
                present.setdefault(row.attention, {})[str(row.layer)] = [
                    value if is_learned else None
                    for value, is_learned in zip(
                        row.values[name], row.are_learned[name], strict=True
                    )
                ]
        try:
            compared = head_order.of_checkpoint(model.path, name, update, present)
            lines[name] = head_order.as_text(compared)
        except (OSError, ValueError) as error:
            lines[name] = f"{head_order.TITLE}: unknown, {error}"
    return lines


def as_json(rows: list[LayerValues]) -> list[dict[str, Any]]:
    """Return the rows as plain dictionaries for ``json.dumps``, with each value under its name."""
    names = _names(rows)
    return [
        {
            "attention": row.attention,
            "layer": row.layer,
            "mapping": row.mapping,
            "learned": bool(row.learned),
            "heads": row.heads,
            "risen": row.risen,
            **{name: row.values.get(name, []) for name in names},
            "learned_heads": {name: row.are_learned[name] for name in row.learned},
        }
        for row in rows
    ]


def as_table(rows: list[LayerValues], last_lines: Mapping[str, str] | None = None) -> str:
    """Format the rows as text tables: one per kind of value, with a line per layer."""
    names = _names(rows)
    if not any(row.values for row in rows) and any(row.heads for row in rows):
        return "the mappings of this model have no values per head"
    tables = {name: _table(rows, name) for name in names}
    below = {name: f"\n{line}" for name, line in (last_lines or {}).items()}
    return "\n\n".join(table + below.get(name, "") for name, table in tables.items())


def _names(rows: list[LayerValues]) -> list[str]:
    """The kinds of values in the rows; alpha if there are none, as in a model without heads."""
    return list(dict.fromkeys(name for row in rows for name in row.values)) or ["alpha"]


def _table(rows: list[LayerValues], name: str) -> str:
    """One table, with a line per layer; fixed values among learned ones stand in brackets."""
    title = TITLES.get(name, f"{name} of each head (learned unless marked 'fixed')")
    cells, learned, brackets = [], [], False
    for row in rows:
        values, are_learned = row.values.get(name, []), row.are_learned.get(name, [])
        texts = []
        for value, is_learned in zip(values, are_learned, strict=True):
            is_fixed = name in row.learned and not is_learned
            text = "-" if value is None else f"{value:.4f}"
            brackets |= is_fixed and value is not None
            texts.append(f"({text})" if is_fixed and value is not None else text)
            if is_learned and value is not None:
                learned.append(value)
        mapping = row.mapping if row.heads else "no heads"
        mapping += " (fixed)" * (bool(row.heads) and bool(values) and name not in row.learned)
        mapping += " (for all heads)" * (name in row.learned and len(values) == 1 < row.heads)
        mapping += f" ({row.risen:.0%} risen)" * (row.risen < 1)
        cells.append([row.attention, str(row.layer), mapping, *texts])
    widest = max(map(len, cells))
    titles = ["attention", "layer", "mapping", *(f" head {n}" for n in range(widest - 3))]
    table = [titles, *(one + [""] * (widest - len(one)) for one in cells)]
    lines = [title, text_table(table, left_aligned=(0, 2))]
    if brackets:
        lines.append("in brackets: fixed")
    if learned:
        mean = sum(learned) / len(learned)
        lines.append(f"learned: mean {mean:.4f}, from {min(learned):.4f} to {max(learned):.4f}")
    else:
        lines.append(f"no {name} is learned in this model")
    return "\n".join(lines)
