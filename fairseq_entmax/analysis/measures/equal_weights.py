"""Runs and clusters: keys to which a query gives exactly the same weight."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as Dictionary
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairseq_entmax.analysis.measures.base import Number, WeightMeasure
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums

if TYPE_CHECKING:
    from torch import Tensor

RUNS, CLUSTERS = "runs", "clusters"
# A mapping's name for the strength that makes weights equal: of neighbours, or anywhere
_MADE_BY = {"tv": RUNS, "oscar": CLUSTERS}


def groups_made(values: Dictionary[str, float | None]) -> str | None:
    """Return which groups of equal weight a head's mapping makes: runs, clusters or None.

    Its values decide, since weights may be equal by chance. A strength of 0 makes no groups; a
    head without the strength has None or NaN."""
    for name, kind in _MADE_BY.items():
        value = values.get(name)
        if value is not None and value > 0:
            return kind
    return None


class EqualWeights(WeightMeasure):
    """Keys of a query with exactly the same weight above zero, in the model's precision: runs of
    neighbours, which end at masked keys and at keys of weight zero, and clusters of keys anywhere.
    A key that shares its weight with no other is a run, and a cluster, of one. Only fusedmax and
    oscarmax make weights equal; other mappings have groups of two or more by chance alone."""

    name = "equal_weights"
    source = "after Niculae and Blondel 2017, figure 1"
    numbers = (
        Number(
            "run-length",
            "Run length",
            "keys in a run of neighbours with equal weight above zero, mean over all runs; with "
            "softmax 1, except by coincidence",
            ("equal_weights", "run_length"),
            largest=None,
            least=1,
        ),
        Number(
            "run-weight",
            "Weight in runs",
            "share of a query's weight on runs of two keys or more, mean over the queries; with "
            "softmax 0, except by coincidence",
            ("equal_weights", "run_weight"),
        ),
        Number(
            "cluster-size",
            "Cluster size",
            "keys of a query with equal weight above zero, side by side or apart, mean over all such "
            "clusters; with softmax 1, except by coincidence",
            ("equal_weights", "cluster_size"),
            largest=None,
            least=1,
        ),
        Number(
            "cluster-weight",
            "Weight in clusters",
            "share of a query's weight on clusters of two keys or more, mean over the queries; with "
            "softmax 0, except by coincidence",
            ("equal_weights", "cluster_weight"),
        ),
    )

    def shown(self, analysis: dict[str, Any]) -> Iterator[Number]:
        """Yield all numbers; tables of heads have only those of groups that some mapping makes."""
        layers = (layer for model in analysis["models"] for layer in model["attentions"])
        made = {groups_made(head["values"]) for layer in layers for head in layer["heads"]}
        for number in self.numbers:
            kind = RUNS if number.name.startswith("run") else CLUSTERS
            is_made = kind in made
            yield replace(number, is_main=is_made, in_summary=is_made)

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        rows, real, support = weights.weights.detach(), weights.queries.real, weights.support
        for length, weight, ordered in (
            ("run_length", "run_weight", rows),
            ("cluster_size", "cluster_weight", _ascending(rows)),
        ):
            equal = equal_to_left(ordered)
            groups = support - equal.sum(dim=-1)
            sums.add(length, _by_head(support, real))
            sums.add(f"{length}/count", _by_head(groups, real))
            sums.add_mean(weight, (ordered * in_group(equal)).sum(dim=-1), real)


def equal_to_left(rows: Tensor) -> Tensor:
    """Whether each key, ``(…, keys)``, has the same weight above zero as the key to its left."""
    equal = rows != 0
    equal[..., :1] = False
    equal[..., 1:] &= rows[..., 1:] == rows[..., :-1]
    return equal


def in_group(equal: Tensor) -> Tensor:
    """Whether each key is in a run of two or more, given the result of :func:`equal_to_left`."""
    member = equal.clone()
    member[..., :-1] |= equal[..., 1:]
    return member


def _ascending(rows: Tensor) -> Tensor:
    """Sort each row, so that equal weights are side by side."""
    import numpy
    import torch

    if rows.device.type == "cpu":  # ten times as fast for rows as short as sentences
        return torch.from_numpy(numpy.sort(rows.numpy(), axis=-1))
    return rows.sort(dim=-1).values


def _by_head(counts: Tensor, real: Tensor) -> Tensor:
    return counts.masked_fill(~real[:, None], 0).sum(dim=(0, 2))
