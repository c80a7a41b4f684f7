"""Texts of one's own as a data set of fairseq, as if they had been prepared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from fairseq import data
from torch import Tensor

from fairseq_entmax.analysis.looking.sentence import Item


def dataset(kind: str, task: Any, items: Sequence[Item]) -> Any:
    """Texts alone, or pairs of them, as the kind of the task's data is."""
    sources = [item.source for item in items]
    sizes = _sizes(sources)
    if kind == "text":
        return _text_alone(task, data.ListDataset(sources, sizes), sizes)
    targets = [item.target for item in items if item.target is not None]
    return data.LanguagePairDataset(
        sources,
        sizes,
        task.source_dictionary,
        targets,
        _sizes(targets),
        task.target_dictionary,
        left_pad_source=task.cfg.left_pad_source,
        left_pad_target=task.cfg.left_pad_target,
        shuffle=False,
    )


def _text_alone(task: Any, tokens: Any, sizes: numpy.ndarray) -> Any:
    """Read from its beginning, each text a sample."""
    words = task.source_dictionary
    blocks = data.TokenBlockDataset(
        tokens, sizes, None, words.pad(), words.eos(), break_mode="eos", include_targets=True
    )
    return data.MonolingualDataset(
        dataset=blocks,
        sizes=blocks.sizes,
        src_vocab=words,
        tgt_vocab=task.target_dictionary,
        add_eos_for_other_targets=False,
        shuffle=False,
        targets=task.targets,
        add_bos_token=task.args.add_bos_token,
    )


def _sizes(texts: Sequence[Tensor]) -> numpy.ndarray:
    return numpy.array([len(one) for one in texts], dtype=numpy.int64)
