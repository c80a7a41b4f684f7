"""Batches of chosen sentences of a data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from fairseq import utils

from fairseq_entmax.analysis.data.loading import load_dataset


def samples(
    dataset: Any,
    sentences: Sequence[int],
    device: torch.device,
    at_once: int = 1,
    max_tokens: int | None = None,
) -> Iterator[Any]:
    """Batches of given sentences of a data set, those of a like length together."""
    batches: list[list[int]] = []
    for number in sorted(sentences, key=dataset.num_tokens):
        size = len(batches[-1]) if batches else at_once
        tokens = (size + 1) * int(dataset.num_tokens(number))
        if size >= at_once or (max_tokens is not None and tokens > max_tokens):
            batches.append([])
        batches[-1].append(number)
    for batch in batches:
        yield on_device(dataset.collater([dataset[number] for number in batch]), device)


def load_samples(
    task: Any, subset: str, sentences: Sequence[int], at_once: int = 1, device: str = "cpu"
) -> list[Any]:
    """Batches of sentences by their numbers in the data set, for notebooks: those of a like length
    together, ``at_once`` to a batch."""
    dataset = load_dataset(task, subset)
    return list(samples(dataset, sentences, torch.device(device), at_once))


def on_device(sample: Any, device: torch.device) -> Any:
    """A batch of fairseq's, on a device."""
    return utils.move_to_cuda(sample, device) if device.type == "cuda" else sample
