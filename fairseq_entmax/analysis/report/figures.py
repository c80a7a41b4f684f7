"""The papers' figures, drawn from an analysis, and what else can be written as files."""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Sequence
from functools import partial
from typing import Any

from fairseq_entmax.analysis.report import (
    figures_density,
    figures_grids,
    figures_heads,
    figures_maps,
    figures_values,
)
from fairseq_entmax.analysis.report.charts import Analysis, Drawable, Figure
from fairseq_entmax.analysis.report.figures_pruning import bleu_by_heads

_NAMED = 12
_DRAWN = (
    figures_values.trajectories,
    figures_values.histograms,
    figures_density.density_distribution,
    figures_density.density_by_layer,
    figures_density.diversity_by_layer,
    figures_heads.confidence_and_importance,
    figures_heads.dependency_accuracy,
)


def figures(analysis: Analysis, pruning: list[dict[str, Any]] | None = None) -> list[Figure]:
    """Every figure that the analysis has numbers for, each with a name of its own."""
    drawn = [figure for draw in _DRAWN for figure in draw(analysis)]
    return drawn + (bleu_by_heads(pruning) if pruning else [])


def drawables(analysis: Analysis, shown: Sequence[Figure]) -> list[Drawable]:
    """What can be written as files: the figures of the page, grids and attention maps."""
    return [
        *(Drawable(figure.name, True, partial(copy.copy, figure)) for figure in shown),
        *figures_grids.grids(analysis),
        *figures_maps.maps(analysis),
    ]


def chosen(drawables: Sequence[Drawable], names: str | None) -> list[Drawable]:
    """Those of some names with commas between them, as in a shell; without names the usual ones."""
    if names is None:
        return [one for one in drawables if one.is_usual]
    patterns = [part.strip() for part in names.split(",")]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(one.name, pattern) for one in drawables):
            # Those first that begin likewise
            there = sorted(drawables, key=lambda one: one.name[:4] != pattern[:4])
            more = f" and {len(there) - _NAMED} more" * (len(there) > _NAMED)
            raise ValueError(
                f"--figure-names got '{names}': '{pattern}' fits no figure; there are "
                f"{', '.join(one.name for one in there[:_NAMED])}{more}"
            )
    return [one for one in drawables if any(fnmatch.fnmatchcase(one.name, p) for p in patterns)]
