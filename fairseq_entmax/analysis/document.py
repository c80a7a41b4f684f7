"""The written form of an analysis: ``analysis.json``, its version and its JSON Schema.

The schema, ``analysis.schema.json`` beside this module, says what each number means. Documents
of version 1 are read, too, and become such of version 2.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any, cast

from fairseq_entmax.analysis.consistency import check
from fairseq_entmax.analysis.maps import LARGEST
from fairseq_entmax.analysis.measures.base import Number, declared
from fairseq_entmax.analysis.schema import fill, schema
from fairseq_entmax.analysis.version1 import converted
from fairseq_entmax.files import write_together
from fairseq_entmax.reasons import named

FORMAT = "fairseq-entmax-analysis"
VERSION = 2
FILE_NAME = "analysis.json"

# What a file may hold: weights that fill the memory they may have, and do not get smaller by
# compression, in base64, and as much again of everything else
LARGEST_FILE = 3 * LARGEST
# Whole numbers that JavaScript, and a double, have exactly
LARGEST_NUMBER = 1 << 53
MOST_ERRORS = 100

# What numbers are rounded to; more would be noise of float32
DIGITS = 6


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and validate an analysis.

    What is read is bounded by the file's size, which is bounded too: weights, which are
    compressed in it, are inflated one map at a time and never beyond the map's shape.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON, or no analysis of this version; names the file.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"{named(path)} does not exist or is no file: give the analysis.json that fairseq-entmax "
            f"analyze wrote"
        )
    size = file.stat().st_size
    if size > LARGEST_FILE:
        raise ValueError(
            f"{path} has {size:,} bytes, and an analysis {LARGEST_FILE:,} at most: analyse fewer "
            f"or shorter sentences, by --sentences"
        )
    try:
        analysis = _parsed(path)
        if _kind(analysis) == (FORMAT, 1):
            analysis = converted(analysis, str(path))
        validate(analysis, str(path))
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply to be an analysis") from None
    return cast(dict[str, Any], analysis)


def _parsed(path: str | os.PathLike[str]) -> Any:
    try:
        text = Path(path).read_text(encoding="utf-8")
        return json.loads(text, parse_constant=_constant, parse_float=_finite, parse_int=_whole)
    except OSError as error:
        raise OSError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def _kind(analysis: Any) -> tuple[Any, Any]:
    content = analysis if isinstance(analysis, dict) else {}
    return content.get("format"), content.get("version")


def _constant(name: str) -> None:
    """What Python reads beyond JSON."""
    raise ValueError(f"it holds {name}")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it holds {text[:20]}, a number that is too large")
    return number


def _whole(text: str) -> int:
    # Their number of digits first: to read very many takes very long
    if len(text) > 20 or abs(number := int(text)) > LARGEST_NUMBER:
        raise ValueError(f"it holds {text[:20]}, a number that is too large")
    return number


def validate(analysis: Any, name: str) -> None:
    """Check a document against the schema.

    Args:
        analysis: what was read from the file; null is filled in for measures that it lacks.
        name: what to call it in errors.

    Raises:
        ValueError: it is not an analysis, of another version, or not in its form; names the
            place.
        ModuleNotFoundError: the extra ``report`` is not installed.
    """
    form, version = _kind(analysis)
    if form != FORMAT:
        raise ValueError(f"{name} is not what 'fairseq-entmax analyze' writes")
    if version != VERSION:
        raise ValueError(
            f"{name} has version {version!r} of the format, and this release reads version 1 and "
            f"{VERSION}: analyse the checkpoints anew, or use the release that wrote it"
        )
    try:
        import jsonschema
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "reading an analysis needs jsonschema: run pip install 'fairseq-entmax[report]'",
            name="jsonschema",
        ) from None
    validator = jsonschema.Draft202012Validator(schema(_described(analysis)))
    # The best of some: a damaged file can have any number
    errors = itertools.islice(validator.iter_errors(analysis), MOST_ERRORS)
    error = jsonschema.exceptions.best_match(errors)
    if error is not None:
        raise ValueError(f"{name} is damaged at {error.json_path}: {error.message[:200]}")
    fill(analysis)
    check(analysis, name)


def _described(analysis: dict[str, Any]) -> list[Number]:
    """The numbers of a document that may be damaged; none where they are."""
    try:
        numbers = declared(analysis)
    except (KeyError, TypeError):
        return []
    return [number for number in numbers if number.place and isinstance(number.place[0], str)]


def check_output(folder: str, overwrite: bool) -> None:
    """Refuse, before any work, to write where an analysis is or where nothing can be written.

    Raises:
        FileExistsError: there is one, and it is not to be replaced.
        NotADirectoryError: ``folder`` is something else than a folder.
        OSError: nothing can be written there.
    """
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise NotADirectoryError(f"--output got {folder!r}, which is no folder: name another")
    path = os.path.join(folder, FILE_NAME)
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(
            f"--output: {path} exists: choose another folder, or replace it with --overwrite"
        )
    above = Path(folder).absolute()
    while not above.exists():
        above = above.parent
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise OSError(f"--output got {folder!r}, where nothing can be written: {error}") from error


def write(analysis: dict[str, Any], folder: str) -> str:
    """Write ``analysis.json``, whole or not at all.

    Args:
        analysis: the document; its numbers are rounded.
        folder: made where it is missing.

    Returns:
        The file's path.
    """
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, FILE_NAME)
    text = json.dumps(rounded(analysis), ensure_ascii=False, allow_nan=False)
    write_together({Path(os.path.realpath(path)): f"{text}\n".encode()})
    return path


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Nested data with every number rounded to so many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(one, digits) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one, digits) for one in value]
    return value
