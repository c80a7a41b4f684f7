"""What can be written as files, by name, and drawn only where it is chosen."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairseq_entmax.analysis.report.charts import Figure

_NAMED = 12


@dataclass(frozen=True)
class Drawable:
    """A figure that is not drawn yet.

    Attributes:
        name: that of the figure.
        is_usual: whether it is drawn where no names are given.
        draw: draws it.
    """

    name: str
    is_usual: bool
    draw: Callable[[], Figure]

    @classmethod
    def of(cls, figure: Figure) -> Drawable:
        """A usual one that is drawn already."""
        return cls(figure.name, True, lambda: figure)


def chosen(drawables: Sequence[Drawable], names: str | None) -> list[Drawable]:
    """Those of some names, else the usual ones.

    Args:
        drawables: what there is.
        names: separated by commas; each may have ``*``, ``?`` and ``[…]`` as names of files in a
            shell. None: the usual ones.

    Raises:
        ValueError: a name fits none of them.
    """
    if names is None:
        return [one for one in drawables if one.is_usual]
    patterns = [part.strip() for part in names.split(",") if part.strip()]
    for pattern in patterns or [names]:
        if not any(fnmatch.fnmatchcase(one.name, pattern) for one in drawables):
            raise ValueError(
                f"--figure-names got '{names}': '{pattern}' fits no figure; there are "
                f"{_listed([one.name for one in drawables], pattern)}"
            )
    return [
        one
        for one in drawables
        if any(fnmatch.fnmatchcase(one.name, pattern) for pattern in patterns)
    ]


def _listed(names: Sequence[str], pattern: str) -> str:
    """Some of the names, those first that begin likewise."""
    begin = pattern.partition("_")[0]
    alike = [name for name in names if name.partition("_")[0] == begin and begin]
    shown = [*alike, *(name for name in names if name not in alike)][:_NAMED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more, such as {names[-1]}" if more else "")
