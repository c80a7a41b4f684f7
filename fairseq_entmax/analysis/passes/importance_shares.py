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


def shares(parts: Sequence[ByHead]) -> Shares:
    """Return the shares of all sentences, given batches: attention to layer to ``(batch, heads)``."""
    heads: ByHead = {attention: {} for attention in parts[0]}
    errors: ByHead = {attention: {} for attention in parts[0]}
    number = 0
    for attention, layers in parts[0].items():
        for layer in layers:
            rows = torch.cat([one[attention][layer].double().cpu() for one in parts])
            number = len(rows)
            heads[attention][layer], errors[attention][layer] = _share_and_error(rows)
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
    parts, shown = [], loading.shows_progress(args)
    with watched(None, measure.name, len(places), shown, "sentences") as progress:
        for sample in samples(dataset, places, tables.device, at_once, args.max_tokens):
            parts.append(measure.importance(loaded.model, sample))
            progress.update(len(sample["id"]))
    return shares(parts)
