"""Estimate the importance of heads, with standard errors, on some sentences of a data set.

Measures of importance need passes of their own, so they use sentences spread evenly over the data
set, and take more of them until the standard error of every head's share of its layer is small."""

from __future__ import annotations

import itertools
import math
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.analysis.data import loading
from fairseq_entmax.analysis.data.batch import Tables
from fairseq_entmax.analysis.data.samples import evenly_spread, samples
from fairseq_entmax.analysis.importance import ByHead
from fairseq_entmax.analysis.measures.base import ImportanceMeasure
from fairseq_entmax.analysis.models.loaded import LoadedModel
from fairseq_entmax.progress import watched

# Sentences before the first check of the standard error, which is itself an estimate, and between
# checks
FEWEST, MORE = 64, 32


def spread_order(size: int) -> Iterator[int]:
    """Yield the numbers below ``size`` in van der Corput's order: every prefix is evenly spread."""
    bits = max(0, size - 1).bit_length()
    for number in range(1 << bits):
        reversed_ = int(f"{number:0{bits}b}"[::-1], 2) if bits else 0
        if reversed_ < size:
            yield reversed_


def blocks_of(measure: ImportanceMeasure, size: int, number: int | None) -> list[list[int]]:
    """Return blocks of sentence indices below ``size``; errors are checked after each block."""
    if number is not None or measure.precision is None:
        return [evenly_spread(size, number or measure.sentences)]
    order = list(itertools.islice(spread_order(size), measure.sentences))
    return [
        order[:FEWEST],
        *(order[begin : begin + MORE] for begin in range(FEWEST, len(order), MORE)),
    ]


class Shares(NamedTuple):
    """Heads' shares by one measure, and their standard errors, which are NaN for one sentence."""

    heads: ByHead
    errors: ByHead
    sentences: int

    @property
    def largest_error(self) -> float:
        """The largest standard error; infinite if they are unknown, 0 without heads."""
        every = [error for layers in self.errors.values() for error in layers.values()]
        largest = max((float(one.max()) for one in every if len(one)), default=0.0)
        return math.inf if math.isnan(largest) else largest


class ShareSums:
    """The importance of heads in sentences: one number per sentence and head."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], list[Tensor]] = {}

    def update(self, importance: ByHead) -> None:
        """Add sentences: attention to layer to ``(sentences, heads)``."""
        for attention, layers in importance.items():
            for layer, values in layers.items():
                self._rows.setdefault((attention, layer), []).append(values.double().cpu())

    def shares(self) -> Shares:
        """Return the shares of all sentences so far."""
        heads: ByHead = {}
        errors: ByHead = {}
        number = 0
        for (attention, layer), parts in self._rows.items():
            rows = torch.cat(parts)
            number = len(rows)
            share, error = _share_and_error(rows)
            heads.setdefault(attention, {})[layer] = share
            errors.setdefault(attention, {})[layer] = error
        return Shares(heads, errors, number)


def _share_and_error(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return shares, and their errors by linearizing the ratio (Cochran 1977, equation 2.46)."""
    number, total = len(rows), rows.sum()
    total = total.where(total > 0, 1.0)
    share = rows.sum(dim=0) / total
    residuals = rows - share * rows.sum(dim=1, keepdim=True)
    factor = number / (number - 1) if number > 1 else math.nan
    return share, (factor * residuals.square().sum(dim=0)).sqrt() / total


def shares_of(
    args: Namespace,
    measure: ImportanceMeasure,
    loaded: LoadedModel,
    dataset: Any,
    seen: Sequence[int],
    tables: Tables,
) -> Shares:
    """Measure the importance of a model's heads, on as many of the sentences ``seen`` as needed."""
    blocks = blocks_of(measure, len(seen), getattr(args, measure.option))
    at_once = min(args.batch_size or measure.at_once, measure.at_once)
    most, shown = sum(map(len, blocks)), loading.shows_progress(args)
    sums = ShareSums()
    with watched(None, measure.name, most, shown, "sentences") as progress:
        for block in blocks:
            places = [seen[n] for n in block]
            for sample in samples(dataset, places, tables.device, at_once, args.max_tokens):
                sums.update(measure.importance(loaded.model, sample))
                progress.update(len(sample["id"]))
            shares = sums.shares()
            if measure.precision is not None and shares.largest_error <= measure.precision:
                break
    return shares
