"""Figures as files for a paper, drawn without a browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq_entmax.analysis.report.charts import Figure

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


def export_figures(
    figures: Sequence[Figure],
    directory: str | os.PathLike[str],
    formats: Sequence[str] = FORMATS,
    overwrite: bool = False,
) -> list[Path]:
    """Write ``NAME.FORMAT`` for every figure and format; all of them, or none.

    Args:
        figures: what to write.
        directory: where; made if there is none.
        formats: some of ``png``, ``svg`` and ``pdf``.
        overwrite: replace files that exist.

    Returns:
        The files written.

    Raises:
        FileExistsError: one of the files exists; nothing is written.
        OSError: the files cannot be written; those that exist stay as they were.
        ValueError: an unknown format.
    """
    for name in formats:
        if name not in _DRAW:
            raise ValueError(f"formats got '{name}': give some of {', '.join(FORMATS)}")
    folder = Path(directory)
    files = {
        folder / f"{figure.name}.{name}": (figure, name) for figure in figures for name in formats
    }
    _check_files(folder, list(files), overwrite)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"--figures {directory}: cannot make the folder: {error}") from error
    temporary = {file: file.with_name(f"{file.name}.tmp{os.getpid()}") for file in files}
    try:
        for file, (figure, name) in files.items():
            temporary[file].write_bytes(_DRAW[name](figure.for_paper()))
        for file, whole in temporary.items():
            os.replace(whole, file)
    except OSError as error:
        raise OSError(f"--figures {directory}: cannot write the figures: {error}") from error
    finally:
        for whole in temporary.values():
            whole.unlink(missing_ok=True)
    return list(files)


def _check_files(folder: Path, files: Sequence[Path], overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"--figures {folder}: that is a file, give a folder")
    existing = [file for file in files if file.exists()]
    if existing and not overwrite:
        raise FileExistsError(
            f"--figures {folder}: {existing[0].name} exists there; give another folder, or "
            "--overwrite to replace it"
        )
