"""Texts of one's own as a data set of fairseq, as if they had been prepared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from fairseq.data import (
    IdDataset,
    LanguagePairDataset,
    ListDataset,
    MonolingualDataset,
    NestedDictionaryDataset,
    NumelDataset,
    NumSamplesDataset,
    RawLabelDataset,
    RightPadDataset,
    TokenBlockDataset,
)
from torch import Tensor


def pairs(task: Any, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> Any:
    """Pairs of texts.

    Args:
        task: fairseq's, of translation.
        sources, targets: ``(tokens,)`` each, with the ends of sentences.
    """
    return LanguagePairDataset(
        list(sources),
        _sizes(sources),
        task.source_dictionary,
        list(targets),
        _sizes(targets),
        task.target_dictionary,
        left_pad_source=task.cfg.left_pad_source,
        left_pad_target=task.cfg.left_pad_target,
        shuffle=False,
    )


def text_alone(task: Any, texts: Sequence[Tensor]) -> Any:
    """Texts that a language model reads from their beginnings, each a sample."""
    words = task.source_dictionary
    blocks = TokenBlockDataset(
        ListDataset(list(texts), _sizes(texts)),
        _sizes(texts),
        None,
        pad=words.pad(),
        eos=words.eos(),
        break_mode="eos",
        include_targets=True,
    )
    return MonolingualDataset(
        dataset=blocks,
        sizes=blocks.sizes,
        src_vocab=words,
        tgt_vocab=task.target_dictionary,
        add_eos_for_other_targets=False,
        shuffle=False,
        targets=task.targets,
        add_bos_token=task.args.add_bos_token,
    )


def labelled(task: Any, texts: Sequence[Tensor], labels: Sequence[int]) -> Any:
    """Texts with the number of a class each."""
    tokens = ListDataset(list(texts), _sizes(texts))
    return NestedDictionaryDataset(
        {
            "id": IdDataset(),
            "net_input": {
                "src_tokens": RightPadDataset(tokens, pad_idx=task.source_dictionary.pad()),
                "src_lengths": NumelDataset(tokens, reduce=False),
            },
            "nsentences": NumSamplesDataset(),
            "ntokens": NumelDataset(tokens, reduce=True),
            "target": RawLabelDataset(list(labels)),
        },
        sizes=[_sizes(texts)],
    )


def _sizes(texts: Sequence[Tensor]) -> numpy.ndarray:
    return numpy.array([len(one) for one in texts], dtype=numpy.int64)
