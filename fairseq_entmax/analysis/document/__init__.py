"""The written form of an analysis: ``analysis.json``, which :func:`schema` describes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

from fairseq_entmax.analysis.document.schema import schema
from fairseq_entmax.analysis.measures.base import Number, declared
from fairseq_entmax.error_messages import required
from fairseq_entmax.files import write_together

FORMAT = "fairseq-entmax-analysis"
VERSION = 2
FILE_NAME = "analysis.json"

# Significant digits of numbers; more would be float32 noise
DIGITS = 6


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        analysis = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    validate(analysis, str(path))
    return cast(dict[str, Any], analysis)


def validate(analysis: Any, name: str) -> None:
    content = analysis if isinstance(analysis, dict) else {}
    version = content.get("version")
    if content.get("format") != FORMAT:
        raise ValueError(f"{name} was not written by 'fairseq-entmax analyze'")
    if version != VERSION:
        raise ValueError(
            f"{name} has version {version!r} of the format, but this release reads version "
            f"{VERSION}: analyse the checkpoints again, or use the release that wrote it"
        )
    install = "reading an analysis needs jsonschema: run pip install 'fairseq-entmax[report]'"
    jsonschema = required("jsonschema", install)
    validator = jsonschema.Draft202012Validator(schema(_described(analysis)))
    error = jsonschema.exceptions.best_match(validator.iter_errors(analysis))
    if error is not None:
        raise ValueError(f"{name} is damaged at {error.json_path}: {error.message[:200]}")


def _described(analysis: dict[str, Any]) -> list[Number]:
    """Return the numbers that a document declares; none if they are damaged."""
    try:
        numbers = declared(analysis)
    except (KeyError, TypeError):
        return []
    return [number for number in numbers if number.place and isinstance(number.place[0], str)]


def check_output(folder: str | None, overwrite: bool) -> None:
    """Refuse, before any work, a folder that has an analysis already or cannot be written to."""
    if not folder:
        raise ValueError("give --output DIR, the folder for the results")
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"--output got {folder!r}, which is not a folder: choose another")
    if os.path.lexists(path / FILE_NAME) and not overwrite:
        raise FileExistsError(
            f"--output: {path / FILE_NAME} exists: choose another folder, or replace it with --overwrite"
        )
    above = next(one for one in [path.absolute(), *path.absolute().parents] if one.exists())
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise PermissionError(f"--output got {folder!r}, which is not writable: choose another")


def write(analysis: dict[str, Any], folder: str) -> str:
    """Write ``analysis.json``, whole or not at all."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, FILE_NAME)
    text = json.dumps(rounded(analysis), ensure_ascii=False, allow_nan=False)
    write_together({Path(os.path.realpath(path)): f"{text}\n".encode()})
    return path


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Return nested data with every float rounded to ``digits`` significant digits; a value below
    1 does not become 1, so that a density of 1 has no zeros."""
    if isinstance(value, float):
        short = float(f"{value:.{digits}g}")
        return value if value < 1 == short else short
    if isinstance(value, dict):
        return {key: rounded(one, digits) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one, digits) for one in value]
    return value
