"""Records of the synthetic models, cached, and changes that plant an effect in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import claims.attention_papers
import claims.voita  # noqa: F401
from claims.verdicts import Finding, judge

from tests.examples.tools.claims.synthetic import (
    FOUND,
    NOTHING,
    SEEDS,
    Document,
    Effects,
    changed,
    corpus_of,
    documents,
)


@cache
def _made(found: bool, seeds: tuple[int, ...]) -> list[Document]:
    return documents(FOUND if found else NOTHING, seeds)


def found(seeds: Sequence[int] = SEEDS, **wanted: Any) -> list[Document]:
    """Runs with what the papers found, of which all that is given is so; not to be changed."""
    return chosen(_made(True, tuple(seeds)), **wanted)


def nothing(seeds: Sequence[int] = SEEDS, **wanted: Any) -> list[Document]:
    """Runs without what the papers found; not to be changed."""
    return chosen(_made(False, tuple(seeds)), **wanted)


def chosen(runs: Sequence[Document], **wanted: Any) -> list[Document]:
    """Of these runs those that are so."""
    return [run for run in runs if all(run[name] == value for name, value in wanted.items())]


def scored(size: str, seeds: Sequence[int] = SEEDS, **effects: dict[str, float]) -> list[Document]:
    """Runs of one size with such BLEU."""
    return chosen(documents(Effects(**effects), seeds), size=size)


def judged(
    key: str,
    runs: Sequence[Document],
    change: Callable[[Document], None] | None = None,
    **wanted: Any,
) -> Finding:
    """What is found of a claim on these runs, of which those that are so were changed."""
    if change is not None:
        runs = changed(runs, change, **wanted)
    return judge(key, corpus_of(runs))


def heads(
    document: Document, attention: str = "encoder-self", layer: int | None = None
) -> Iterator[dict[str, Any]]:
    """The heads of a run's analysis."""
    for entry in document["analysis"]["models"][0]["attentions"]:
        if entry["attention"] == attention and layer in (None, entry["layer"]):
            yield from entry["heads"]
