"""The papers' figures, drawn from an analysis, and other figures that can be written as files."""

from __future__ import annotations

import copy
import fnmatch
import os
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dictionary
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_entmax.analysis.report import (
    figures_density,
    figures_grids,
    figures_heads,
    figures_maps,
    figures_values,
)
from fairseq_entmax.analysis.report.charts import Analysis, Drawable, Figure, vl_convert
from fairseq_entmax.analysis.report.figures_pruning import bleu_by_heads, remaining_heads
from fairseq_entmax.files import check_target
from fairseq_entmax.progress import watched

_NAMED = 12
_DRAWN = (
    figures_values.trajectories,
    figures_values.histograms,
    figures_density.density_distribution,
    figures_density.density_by_layer,
    figures_density.diversity_by_layer,
    figures_heads.confidence_and_importance,
    figures_heads.functions_by_model,
    figures_heads.dependency_accuracy,
    figures_heads.dependency_offsets,
)


def figures(analysis: Analysis, pruning: list[dict[str, Any]] | None = None) -> list[Figure]:
    """Every figure that the analysis has numbers for, each with a unique name."""
    drawn = [figure for draw in _DRAWN for figure in draw(analysis)]
    return drawn + ([*bleu_by_heads(pruning), *remaining_heads(pruning)] if pruning else [])


def drawables(analysis: Analysis, shown: Sequence[Figure]) -> list[Drawable]:
    """All figures that can be written as files: those of the page, grids and attention maps."""
    return [
        *(Drawable(figure.name, True, partial(copy.copy, figure)) for figure in shown),
        *figures_grids.grids(analysis),
        *figures_maps.maps(analysis),
    ]


def chosen(drawables: Sequence[Drawable], names: str | None) -> list[Drawable]:
    """Select by comma-separated names with a shell's wildcards; None selects the usual ones."""
    if names is None:
        return [one for one in drawables if one.is_usual]
    patterns = [part.strip() for part in names.split(",")]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(one.name, pattern) for one in drawables):
            # First those that begin in the same way
            there = sorted(drawables, key=lambda one: one.name[:4] != pattern[:4])
            more = f" and {len(there) - _NAMED} more" * (len(there) > _NAMED)
            raise ValueError(
                f"--figure-names got '{names}': '{pattern}' matches no figure; there are "
                f"{', '.join(one.name for one in there[:_NAMED])}{more}"
            )
    return [one for one in drawables if any(fnmatch.fnmatchcase(one.name, p) for p in patterns)]


PNG_SCALE = 3
_DRAW: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "png": lambda spec: vl_convert.vegalite_to_png(spec, scale=PNG_SCALE),
    "svg": lambda spec: vl_convert.vegalite_to_svg(spec).encode("utf-8"),
    "pdf": lambda spec: vl_convert.vegalite_to_pdf(spec),
}
FORMATS = tuple(_DRAW)


def figure_files(
    figures: Sequence[Drawable],
    directory: str | os.PathLike[str],
    formats: Sequence[str],
    overwrite: bool,
) -> dict[Path, tuple[Drawable, str]]:
    """The files of figures, ``NAME.FORMAT``, which are checked before anything is drawn."""
    if not os.fspath(directory):
        raise ValueError("--figures got '': give the folder for the figures' files")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    return {
        check_target(folder / f"{figure.name}.{name}", "--figures", overwrite): (figure, name)
        for figure in figures
        for name in formats
    }


def drawn(files: Dictionary[Path, tuple[Drawable, str]]) -> dict[Path, bytes]:
    contents = {}
    specs: dict[str, dict[str, Any]] = {}
    for file, (figure, name) in watched(files.items(), "figures", unit="files"):
        if figure.name not in specs:
            # A figure's files follow each other, so only one specification is kept
            specs = {figure.name: figure.draw().for_paper()}
        contents[file] = _DRAW[name](specs[figure.name])
    return contents
