"""What several measures share: the weights of a batch, and sums over batches.

Weights are ``(batch, heads, queries, keys)``, one row of probabilities for each query, zero
at padding. Where several keys share the largest weight, the leftmost counts as the maximum."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from fairseq_entmax.analysis.data.batch import Batch


class LayerWeights:
    """The weights of one attention of one layer, and results that are computed from them once.

    ``attendable``: ``(batch, queries)``, how many keys, from its sentence's first, a query sees."""

    def __init__(self, attention: str, weights: Tensor, batch: Batch) -> None:
        self.attention = attention
        self.weights = weights
        self.batch = batch
        self.queries, self.keys = batch.sides(attention)
        self.attendable = batch.attendable(attention)

    @cached_property
    def maximum(self) -> Tensor:
        """The leftmost key with the largest weight: ``(batch, heads, queries)`` int64."""
        return self.weights.argmax(dim=-1)

    @cached_property
    def offset(self) -> Tensor:
        """The maximum's position in its sentence minus the query's: ``(batch, heads, queries)``."""
        return self.maximum - self.keys.start[:, None, None] - self.queries.places[:, None]

    @cached_property
    def support(self) -> Tensor:
        """How many keys get a weight above zero: ``(batch, heads, queries)`` int64."""
        import torch

        return torch.count_nonzero(self.weights, dim=-1)

    @cached_property
    def entropies(self) -> Tensor:
        """Shannon's entropy of each row in nats: ``(batch, heads, queries)``, 0 or more."""
        import torch

        return torch.special.entr(self.weights).sum(dim=-1)

    @cached_property
    def float64(self) -> Tensor:
        return self.weights.double()

    @cached_property
    def received(self) -> Tensor:
        """The weight that each key gets from all queries together: ``(batch, heads, keys)``."""
        return (self.queries.real.double()[:, None, None, :] @ self.float64).squeeze(2)

    @cached_property
    def on_tags(self) -> Tensor:
        """The weight on each part of speech from all queries: ``(batch, heads, tags)``."""
        assert self.batch.annotated is not None
        return self.received @ self.batch.annotated.parts_of_speech


class Sums(dict[str, "Tensor"]):
    """Sums by name, in float64. In sums that differ between heads, the first dimension is heads.

    They do not grow with the data. Batches of any size, in any order, give the same numbers up to
    rounding.

    Attributes:
        labels: the names of a sum's entries, if they have names.
    """

    def __init__(self) -> None:
        super().__init__()
        self.labels: dict[str, tuple[str, ...]] = {}

    def add(self, name: str, value: Tensor) -> None:
        value = value.double()
        self[name] = self[name] + value if name in self else value

    def add_mean(self, name: str, values: Tensor, mask: Tensor) -> None:
        """Add values ``(batch, heads, queries)`` where the mask ``(batch, queries)`` is true."""
        import torch

        self.add(name, values.masked_fill(~mask[:, None], 0).sum(dim=(0, 2), dtype=torch.float64))
        self.add(f"{name}/count", mask.sum())

    def add_ratios(self, name: str, values: Tensor, divisor: Tensor) -> None:
        """Add ratios, ``(batch, …)``, of the sentences whose divisor is above 0."""
        counts = divisor > 0
        safe = divisor.masked_fill(~counts, 1.0)
        self.add(name, (values / safe.view(*safe.shape, *[1] * (values.dim() - safe.dim()))).sum(0))
        self.add(f"{name}/count", counts.sum(dim=0))

    def mean(self, name: str) -> Tensor | None:
        """Return the mean over what was counted; None if nothing was."""
        count = self.get(f"{name}/count")
        return None if count is None or not count.any() else self[name] / count

    def total_mean(self, name: str) -> float | None:
        """Return the mean of a sum that is one number."""
        mean = self.mean(name)
        return None if mean is None else float(mean)

    def of(self, name: str, head: int) -> float | None:
        """Return the mean of one head; None if nothing was counted."""
        count = self.get(f"{name}/count")
        number = count if count is None or not count.dim() else count[head]
        return None if number is None or number == 0 else float(self[name][head] / number)
