"""The findings of a report in a few sentences per model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairseq_entmax.analysis.report.ablation_table import LEVEL, harm
from fairseq_entmax.analysis.report.labels import decimal
from fairseq_entmax.analysis.report.roles import NEARLY_ALL

MOST_NAMED = 3
HALF = 0.5

Heads = list[tuple[str, dict[str, Any]]]


def in_short(analysis: dict[str, Any]) -> list[tuple[str, str]]:
    """The name and the findings of each model; nothing for the user's own sentences."""
    if analysis["data"].get("own"):
        return []
    return [(model["name"], " ".join(_found(model))) for model in analysis["models"]]


def _found(model: dict[str, Any]) -> Iterator[str]:
    heads = [
        (f"{layer['attention']}, layer {layer['layer']}, head {head['head']}", head)
        for layer in model["attentions"]
        for head in layer["heads"]
    ]
    is_open = [(name, head) for name, head in heads if head["gate"] != 0]
    closed = f", {len(heads) - len(is_open)} of them closed" if len(heads) > len(is_open) else ""
    yield f"Heads: {len(heads)}{closed}."
    yield from _sparsity({name: head["density"] for name, head in is_open if head.get("density")})
    yield _dispensable([(name, head) for name, head in is_open if head.get("ablation")])


def _sparsity(densities: dict[str, float]) -> Iterator[str]:
    shares = densities.values()
    if not shares:
        return
    if min(shares) == 1:
        yield "No head gives any word a weight of exactly zero."
        return
    few, nearly_all = sum(one < HALF for one in shares), sum(one >= NEARLY_ALL for one in shares)
    least = min(densities, key=densities.__getitem__)
    yield (
        f"Heads that look at less than half of the words: {few}; at {100 * NEARLY_ALL:.0f} % of them "
        f"or more: {nearly_all}. The sparsest is {least}, with a density of {decimal(densities[least])}."
    )


def _dispensable(removed: Heads) -> str:
    if not removed:
        return "Run fairseq-entmax ablate to find out which heads could be removed."
    if not any(head["significant"] for _, head in removed):
        return "No single removal changed a score significantly: they do not show which could go."
    idle = [
        one for one in removed if all(harm(one[1], name) <= 0 for name in one[1]["significant"])
    ]
    # By the first score; all of these heads have it
    idle.sort(key=lambda one: harm(one[1], next(iter(one[1]["ablation"]))))
    named = "; ".join(name for name, _ in idle[:MOST_NAMED])
    such = f"; these could be removed first, such as {named}" if idle else ""
    return (
        f"Of {len(removed)} heads that were removed one at a time, {len(idle)} made no score "
        f"significantly worse (p < {LEVEL} after Holm's correction){such}."
    )
