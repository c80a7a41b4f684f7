"""Estimate the importance of heads, with standard errors, on some sentences of a data set.

Measures of importance need passes of their own, so they use sentences spread evenly over the data
set."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Sequence
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


class Shares(NamedTuple):
    """Heads' shares by one measure, and their standard errors, which are NaN for one sentence."""

    heads: ByHead
    errors: ByHead
    sentences: int


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
    """Measure the importance of a model's heads on some of the sentences ``seen``."""
    number = getattr(args, measure.option) or measure.sentences
    places = [seen[n] for n in evenly_spread(len(seen), number)]
    at_once = min(args.batch_size or measure.at_once, measure.at_once)
    sums, shown = ShareSums(), loading.shows_progress(args)
    with watched(None, measure.name, len(places), shown, "sentences") as progress:
        for sample in samples(dataset, places, tables.device, at_once, args.max_tokens):
            sums.update(measure.importance(loaded.model, sample))
            progress.update(len(sample["id"]))
    return sums.shares()
