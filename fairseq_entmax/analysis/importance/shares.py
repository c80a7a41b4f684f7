"""How important heads are to a model, over some sentences of a data set, and how surely so.

Both measures take passes of their own, so they are of sentences spread evenly over the data set:
of more of them until the standard error of every head's share of its layer is small.
"""

from __future__ import annotations

import itertools
import math
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.analysis import loading
from fairseq_entmax.analysis.batch import Tables
from fairseq_entmax.analysis.measures.base import ByHead, ImportanceMeasure
from fairseq_entmax.analysis.models import LoadedModel
from fairseq_entmax.analysis.sentences import samples

# Sentences before the first look at the standard error, which is itself an estimate, and between
# two looks
FEWEST, MORE = 64, 32


def evenly_spread(size: int, number: int) -> list[int]:
    """Numbers of ``number`` sentences of ``size``, or of all where there are fewer."""
    number = min(number, size)
    return [(2 * index + 1) * size // (2 * number) for index in range(number)]


def spread_order(size: int) -> Iterator[int]:
    """The numbers below ``size`` in an order of which every beginning is spread evenly: of van der Corput."""
    bits = max(0, size - 1).bit_length()
    for number in range(1 << bits):
        reversed_ = int(f"{number:0{bits}b}"[::-1], 2) if bits else 0
        if reversed_ < size:
            yield reversed_


def blocks_of(measure: ImportanceMeasure, size: int, number: int | None) -> list[list[int]]:
    """Which of ``size`` sentences are looked at, before each look at the standard error."""
    if number is not None or measure.precision is None:
        return [evenly_spread(size, number or measure.sentences)]
    order = list(itertools.islice(spread_order(size), measure.sentences))
    return [
        order[:FEWEST],
        *(order[begin : begin + MORE] for begin in range(FEWEST, len(order), MORE)),
    ]


class Shares(NamedTuple):
    """What heads matter by one measure, and the standard errors of that; NaN of a single sentence."""

    heads: ByHead
    errors: ByHead
    sentences: int

    @property
    def largest_error(self) -> float:
        """The largest of the standard errors; infinite where they are not known, 0 without heads."""
        every = [error for layers in self.errors.values() for error in layers.values()]
        largest = max((float(one.max()) for one in every if len(one)), default=0.0)
        return math.inf if math.isnan(largest) else largest


class ShareSums:
    """Sums up what heads matter, a few numbers a head however many sentences there are."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int], _Sums] = {}

    def update(self, importance: ByHead) -> None:
        """Add sentences: attention to layer to ``(sentences, heads)``."""
        for attention, layers in importance.items():
            for layer, values in layers.items():
                own = self._sums.setdefault((attention, layer), _Sums())
                own.update(values.double().cpu())

    def shares(self) -> Shares:
        """What is known so far."""
        heads: ByHead = {}
        errors: ByHead = {}
        for (attention, layer), sums in self._sums.items():
            share, error = sums.share_and_error()
            heads.setdefault(attention, {})[layer] = share
            errors.setdefault(attention, {})[layer] = error
        return Shares(heads, errors, max((one.number for one in self._sums.values()), default=0))


class _Sums:
    """Of one attention of one layer: a head's share is a ratio of two sums over sentences."""

    def __init__(self) -> None:
        self.number = 0
        # Of x, what a head matters in a sentence, y, what all do, and of their products
        self._x = self._xx = self._xy = torch.zeros(())
        self._y = self._yy = torch.zeros(())

    def update(self, rows: Tensor) -> None:
        total = rows.sum(dim=1)
        self.number += len(rows)
        self._x = self._x + rows.sum(dim=0)
        self._xx = self._xx + rows.square().sum(dim=0)
        self._xy = self._xy + (rows * total[:, None]).sum(dim=0)
        self._y = self._y + total.sum()
        self._yy = self._yy + total.square().sum()

    def share_and_error(self) -> tuple[Tensor, Tensor]:
        """The ratio, and its standard error: of its linearization (Cochran 1977, equation 2.46)."""
        if float(self._y) <= 0:
            zeros = torch.zeros_like(self._x)
            return self._x, zeros if self.number > 1 else zeros + math.nan
        share = self._x / self._y
        residuals = self._xx - 2 * share * self._xy + share.square() * self._yy
        if self.number < 2:
            return share, torch.full_like(share, math.nan)
        factor = self.number / (self.number - 1)
        # Where a head has all, rounding leaves less than nothing
        return share, (factor * residuals).clamp(min=0.0).sqrt() / self._y


def until_precise(
    measure: ImportanceMeasure,
    sums: ShareSums,
    blocks: Iterable[Sequence[int]],
    samples: Callable[[Sequence[int]], Iterable[Any]],
) -> Iterator[Any]:
    """Batches of one block of sentences after another, until the errors are as small as wanted."""
    for block in blocks:
        yield from samples(block)
        if measure.precision is not None and sums.shares().largest_error <= measure.precision:
            return


def shares_of(
    args: Namespace,
    measure: ImportanceMeasure,
    loaded: LoadedModel,
    dataset: Any,
    seen: Sequence[int],
    tables: Tables,
) -> Shares:
    """What the heads of a model matter, by as many of the sentences seen as it takes."""
    blocks = blocks_of(measure, len(seen), getattr(args, measure.option))
    at_once = min(args.batch_size or measure.at_once, measure.at_once)
    sums = ShareSums()

    def batches(block: Sequence[int]) -> Iterable[Any]:
        return samples(dataset, [seen[n] for n in block], tables.device, at_once, args.max_tokens)

    needed = until_precise(measure, sums, blocks, batches)
    for sample in loading.with_progress(args, needed, measure.name):
        sums.update(measure.importance(loaded.model, sample))
    return sums.shares()
