"""The written form of an analysis: ``analysis.json``, its version and its JSON Schema.

The schema, ``analysis.schema.json`` beside this module, says what each number means.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from fairseq_entmax.analysis.maps import decoded
from fairseq_entmax.attentions import CROSS, ENCODER_SELF
from fairseq_entmax.files import clear_leftovers, write_together

FORMAT = "fairseq-entmax-analysis"
VERSION = 1
FILE_NAME = "analysis.json"
SCHEMA = Path(__file__).with_name("analysis.schema.json")

# What numbers are rounded to; more would be noise of float32
DIGITS = 6


def schema() -> dict[str, Any]:
    """The JSON Schema of ``analysis.json``."""
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def validate(analysis: Any, name: str) -> None:
    """Check a document against the schema.

    Args:
        analysis: what was read from the file.
        name: what to call it in errors.

    Raises:
        ValueError: it is not an analysis, of another version, or not in its form; names the
            place.
        ModuleNotFoundError: the extra ``report`` is not installed.
    """
    found = analysis.get("format") if isinstance(analysis, dict) else None
    if found != FORMAT:
        raise ValueError(f"{name} is not what 'fairseq-entmax analyze' writes")
    if analysis.get("version") != VERSION:
        raise ValueError(
            f"{name} has version {analysis.get('version')!r} of the format, and this release "
            f"reads version {VERSION}: analyse the checkpoints anew, or use the release that wrote it"
        )
    try:
        import jsonschema
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "reading an analysis needs jsonschema: run pip install 'fairseq-entmax[report]'",
            name="jsonschema",
        ) from None
    validator = jsonschema.Draft202012Validator(schema())
    error = jsonschema.exceptions.best_match(validator.iter_errors(analysis))
    if error is not None:
        raise ValueError(f"{name} is damaged at {error.json_path}: {error.message[:200]}")
    _check_maps(analysis, name)


def _check_maps(analysis: dict[str, Any], name: str) -> None:
    """Refuse maps that do not fit their tokens, or the models."""
    for number, entry in enumerate(analysis["maps"]):
        place = f"{name} is damaged at $.maps[{number}]"
        if len(entry["models"]) != len(analysis["models"]):
            raise ValueError(
                f"{place}.models: it is of {len(entry['models'])} models, and the analysis of "
                f"{len(analysis['models'])}"
            )
        source, target = len(entry["source"]), len(entry["queries"])
        sizes = {ENCODER_SELF: (source, source), CROSS: (target, source)}
        for model, layers in enumerate(entry["models"]):
            for layer, one in enumerate(layers):
                size = sizes.get(one["attention"], (target, target))
                if tuple(one["shape"][1:]) != size:
                    raise ValueError(
                        f"{place}.models[{model}][{layer}].shape: {one['shape']} does not fit "
                        f"{size[0]} queries and {size[1]} keys"
                    )
                try:
                    decoded(one)
                except ValueError as error:
                    raise ValueError(f"{place}.models[{model}][{layer}]: {error}") from None


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
    clear_leftovers([Path(os.path.realpath(path))])
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


def rounded(value: Any) -> Any:
    """Nested data with every number rounded to :data:`DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return value
