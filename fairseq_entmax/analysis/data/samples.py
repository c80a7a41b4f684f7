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
    """Yield batches of the given sentences of a data set, grouped by similar length."""
    batches: list[list[int]] = []
    for number in sorted(sentences, key=dataset.num_tokens):
        size = len(batches[-1]) if batches else at_once
        tokens = (size + 1) * int(dataset.num_tokens(number))
        if size >= at_once or (max_tokens is not None and tokens > max_tokens):
            batches.append([])
        batches[-1].append(number)
    for batch in batches:
        yield on_device(dataset.collater([dataset[number] for number in batch]), device)


def evenly_spread(size: int, number: int) -> list[int]:
    """Return ``number`` evenly spread indices below ``size``, or all if there are fewer."""
    number = min(number, size)
    return [(2 * index + 1) * size // (2 * number) for index in range(number)]


def load_samples(
    task: Any, subset: str, sentences: Sequence[int], at_once: int = 1, device: str = "cpu"
) -> list[Any]:
    """Return batches of the sentences with these numbers, for notebooks: ``at_once`` to a batch,
    grouped by similar length."""
    dataset = load_dataset(task, subset)
    return list(samples(dataset, sentences, torch.device(device), at_once))


def on_device(sample: Any, device: torch.device) -> Any:
    return utils.move_to_cuda(sample, device) if device.type == "cuda" else sample
