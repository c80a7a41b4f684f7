"""Counts of exact searches: by a generator, in a block of Python, and in fairseq's commands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)


@dataclass
class SearchCounts:
    """Numbers of sentences."""

    sentences: int = 0
    exact: int = 0
    # The model gave some word probability zero, and the search was exact or the sentence's end was
    # such a word at some step. This excludes softmax, and zeros only of markers not in the source
    sparse: int = 0
    unfinished: int = 0  # without a hypothesis of probability above zero
    impossible_prefix: int = 0  # with a forced word of probability zero

    def add(self, other: SearchCounts) -> None:
        for name, number in vars(other).items():
            setattr(self, name, getattr(self, name) + number)


_open: list[SearchCounts] = []


def note(generator: Any, counts: SearchCounts) -> None:
    """Add to the generator's ``search_counts``, and to those of every open block."""
    if not hasattr(generator, "search_counts"):
        generator.search_counts = SearchCounts()
    for total in (generator.search_counts, *_open):
        total.add(counts)


@contextmanager
def count_searches() -> Iterator[SearchCounts]:
    """Count the searches of all generators in the block."""
    counts = SearchCounts()
    _open.append(counts)
    try:
        yield counts
    finally:
        # By identity: equal counts may be open
        _open[:] = [each for each in _open if each is not counts]


def reporting(main: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a command of fairseq's, and log at its end how many searches were exact.

    This line is logged only for models with a sparse output.
    """
    with count_searches() as counts:
        result = main(*args, **kwargs)
    if counts.sparse:
        share = 100 * counts.exact / counts.sentences
        logger.info(
            f"exact search: {counts.exact} of {counts.sentences} sentences ({share:.1f}%), whose "
            f"beam held every sequence of non-zero probability"
        )
    if counts.unfinished:
        logger.warning(
            f"{counts.unfinished} of {counts.sentences} sentences have no hypothesis of non-zero "
            f"probability within the limits of the search: the printed one was cut off there, "
            f"and its score leaves out the end of the sentence; a larger --max-len-b, or a "
            f"smaller --min-len, lets it end by itself"
        )
    if counts.impossible_prefix:
        logger.warning(
            f"the model gives words of the prefix probability zero in {counts.impossible_prefix} "
            f"of {counts.sentences} sentences: they are kept, and add nothing to the scores"
        )
    return result
