"""Figures as files for a paper, drawn without a browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dictionary
from pathlib import Path
from typing import Any

from fairseq_entmax.analysis.report.charts import Drawable
from fairseq_entmax.files import check_target

try:
    import vl_convert
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "files of figures need the library vl-convert-python: pip install 'fairseq-entmax[report]'",
        name=error.name,
    ) from error

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
    """The files of figures, ``NAME.FORMAT``, checked before anything is drawn."""
    if not os.fspath(directory):
        raise ValueError("--figures got '': give the folder for the figures' files")
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"--figures {directory}: cannot make the folder: {error}") from error
    return {
        check_target(folder / f"{figure.name}.{name}", "--figures", overwrite): (figure, name)
        for figure in figures
        for name in formats
    }


def drawn(files: Dictionary[Path, tuple[Drawable, str]]) -> dict[Path, bytes]:
    """What goes into each file."""
    contents = {}
    specs: dict[str, dict[str, Any]] = {}
    for file, (figure, name) in files.items():
        if figure.name not in specs:
            # The files of a figure follow each other: one specification at a time
            specs = {figure.name: figure.draw().for_paper()}
        contents[file] = _DRAW[name](specs[figure.name])
    return contents
