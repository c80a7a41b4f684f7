"""How important heads are to a model, over some sentences of a data set, and how surely so.

Both measures take passes of their own, so they are of sentences spread evenly over the data set:
of more of them until the standard error of every head's share of its layer is small."""

from __future__ import annotations

import itertools
import math
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.analysis.data import loading
from fairseq_entmax.analysis.data.batch import Tables
from fairseq_entmax.analysis.data.samples import samples
from fairseq_entmax.analysis.importance import ByHead
from fairseq_entmax.analysis.measures.base import ImportanceMeasure
from fairseq_entmax.analysis.models.loaded import LoadedModel
from fairseq_entmax.progress import watched

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
    """What heads matter in sentences: one number a sentence and head."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], list[Tensor]] = {}

    def update(self, importance: ByHead) -> None:
        """Add sentences: attention to layer to ``(sentences, heads)``."""
        for attention, layers in importance.items():
            for layer, values in layers.items():
                self._rows.setdefault((attention, layer), []).append(values.double().cpu())

    def shares(self) -> Shares:
        """What is known so far."""
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
    """Each head's share, and its error by the ratio's linearization (Cochran 1977, equation 2.46)."""
    number, total = len(rows), rows.sum()
    total = total.where(total > 0, 1.0)
    share = rows.sum(dim=0) / total
    residuals = rows - share * rows.sum(dim=1, keepdim=True)
    factor = number / (number - 1) if number > 1 else math.nan
    return share, (factor * residuals.square().sum(dim=0)).sqrt() / total


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
    most, shown = sum(map(len, blocks)), loading.shows_progress(args)
    with watched(None, measure.name, most, shown, "sentences") as progress:
        for sample in needed:
            sums.update(measure.importance(loaded.model, sample))
            progress.update(len(sample["id"]))
    return sums.shares()
