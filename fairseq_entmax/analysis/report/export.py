"""Figures as files for a paper, drawn without a browser."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dictionary
from pathlib import Path
from typing import Any

from fairseq_entmax.analysis.report.catalogue import Drawable
from fairseq_entmax.files import check_target

try:
    import vl_convert
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "files of figures need the library vl-convert-python: pip install 'fairseq-entmax[report]'",
        name=error.name,
    ) from error

PNG_SCALE = 3

# Entries of one dictionary of a PDF that refer to objects, one below the other
_REFERENCES = re.compile(rb"(?m)^( +)/[\w.+-]+ \d+ 0 R\n(?:\1/[\w.+-]+ \d+ 0 R\n)+")


def _with_sorted_references(pdf: bytes) -> bytes:
    """The same PDF, byte for byte each time it is drawn.

    Its writer puts the names of a page's parts into a dictionary in the order of a hash table, which
    differs from process to process. The lines of a dictionary change places, so no offset changes.
    """
    return _REFERENCES.sub(lambda found: b"".join(sorted(found[0].splitlines(True))), pdf)


_DRAW: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "png": lambda spec: vl_convert.vegalite_to_png(spec, scale=PNG_SCALE),
    "svg": lambda spec: vl_convert.vegalite_to_svg(spec).encode("utf-8"),
    "pdf": lambda spec: _with_sorted_references(vl_convert.vegalite_to_pdf(spec)),
}
FORMATS = tuple(_DRAW)


def figure_files(
    figures: Sequence[Drawable],
    directory: str | os.PathLike[str],
    formats: Sequence[str],
    overwrite: bool,
) -> dict[Path, tuple[Drawable, str]]:
    """The files of figures, ``NAME.FORMAT``, checked before anything is drawn.

    Returns:
        Each file, with its figure and format.

    Raises:
        FileExistsError: one of the files exists, and is not to be replaced.
        OSError: the folder cannot be made, or is a file.
        ValueError: an unknown format, or a folder in a file's place.
    """
    for name in formats:
        if name not in _DRAW:
            raise ValueError(f"formats got '{name}': give some of {', '.join(FORMATS)}")
    folder = Path(directory)
    if not os.fspath(directory):
        raise ValueError("--figures got '': give the folder for the figures' files")
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"--figures {folder}: that is a file, give a folder")
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
