"""The passes of their own that tell what heads matter, over as many sentences as it takes."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

from fairseq_entmax.analysis import loading
from fairseq_entmax.analysis.importance.shares import Shares, ShareSums, blocks_of, until_precise
from fairseq_entmax.analysis.measures import ImportanceMeasure
from fairseq_entmax.analysis.models import LoadedModel
from fairseq_entmax.analysis.sentences import samples
from fairseq_entmax.analysis.tables import Tables


def shares_of(
    args: Namespace,
    measure: ImportanceMeasure,
    loaded: LoadedModel,
    dataset: Any,
    seen: Sequence[int],
    tables: Tables,
) -> Shares:
    """What the heads of a model matter."""
    blocks = blocks_of(measure, len(seen), getattr(args, measure.option))
    at_once = min(args.batch_size or measure.at_once, measure.at_once)
    sums = ShareSums()

    def batches(block: Sequence[int]) -> Iterable[Any]:
        return samples(dataset, [seen[n] for n in block], tables.device, at_once, args.max_tokens)

    needed = until_precise(measure, sums, blocks, batches)
    for sample in loading.with_progress(args, needed, measure.name):
        sums.update(measure.importance(loaded.model, sample, tables.pad))
    return sums.shares()
