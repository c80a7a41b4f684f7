"""How far means over documents are from chance: intervals, and differences of two systems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairseq_entmax.progress import watched

if TYPE_CHECKING:
    from numpy import ndarray

LEVEL = 0.95
# Documents of all resamples that are drawn at once
_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Interval:
    """A mean over documents.

    Attributes:
        value: the mean of the documents themselves.
        low, high: between which 95 % of the means of resamples are.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """The mean of one system less that of another, over the same documents.

    Attributes:
        change: with its interval.
        p: the share of resamples whose difference is as far from the difference found as that
            is from 0, in [1 / (samples + 1), 1]; 1 where no document differs.
    """

    change: Interval
    p: float


def intervals(scores: ndarray, samples: int, seed: int) -> list[Interval]:
    """The means of scores, with percentile intervals of the bootstrap.

    Args:
        scores: ``(documents, scores)``.
        samples: how often to draw as many documents as there are, 1 or more.
        seed: of the draws; the same documents are drawn for every score.

    Source: Efron and Tibshirani 1993, *An Introduction to the Bootstrap*, chapter 13; the
    intervals of ROUGE-1.5.5 are made so.
    """
    import numpy

    means = numpy.concatenate(list(_resampled_means(scores, samples, seed)))
    tail = 50 * (1 - LEVEL)
    low, high = numpy.percentile(means, [tail, 100 - tail], axis=0)
    values = scores.mean(axis=0)
    return [Interval(*map(float, row)) for row in zip(values, low, high, strict=True)]


def differences(first: ndarray, second: ndarray, samples: int, seed: int) -> list[Difference]:
    """Hold a second system against a first by the paired bootstrap.

    Args:
        first: ``(documents, scores)``.
        second: those of the other system, same documents.
        samples: as in :func:`intervals`.
        seed: likewise.

    Source: Koehn 2004, *Statistical Significance Tests for Machine Translation Evaluation*, made
    two-sided.
    """
    import numpy

    changes = second - first
    found = intervals(changes, samples, seed)
    means = numpy.concatenate(list(_resampled_means(changes, samples, seed)))
    away = numpy.abs(means - changes.mean(axis=0)) >= numpy.abs(changes.mean(axis=0))
    p_values = (away.sum(axis=0) + 1) / (samples + 1)
    same = ~changes.any(axis=0)
    return [
        Difference(change, 1.0 if is_same else float(p))
        for change, p, is_same in zip(found, p_values, same, strict=True)
    ]


def _resampled_means(scores: ndarray, samples: int, seed: int) -> Iterator[ndarray]:
    """The means of resamples, ``(some samples, scores)`` at a time."""
    import numpy

    random = numpy.random.default_rng(seed)
    documents = len(scores)
    step = max(1, _AT_ONCE // documents)
    for start in watched(range(0, samples, step), "resamples"):
        number = min(step, samples - start)
        drawn = random.integers(documents, size=(number, documents))
        drawn += numpy.arange(number)[:, None] * documents
        times = numpy.bincount(drawn.ravel(), minlength=number * documents)
        yield times.reshape(number, documents) @ scores / documents
