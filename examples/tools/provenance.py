"""By which code something was made."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "fairseq_entmax"
SOURCES = (".py", ".c", ".h", ".cpp", ".cu")
# What is written beside the code, such as a record, is no change of it
CODE = ("*.py", "*.sh", *(f"*{end}" for end in SOURCES if end != ".py"))


def digest_of(folder: Path) -> str:
    """A text that changes with the sources in a folder, and with nothing else."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in SOURCES):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def package_digest() -> str:
    """Of the package as it is imported here.

    Raises:
        ValueError: it is not installed.
    """
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ValueError(f"the package {PACKAGE} is not installed: install the project")
    return digest_of(Path(found.submodule_search_locations[0]))


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        asked = subprocess.run(
            ["git", "-C", f"{folder}", *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return asked.stdout.strip()


def commit(folder: Path = ROOT) -> str | None:
    """Of a folder; None where it is no checkout."""
    return _git(folder, "rev-parse", "HEAD")


def is_changed(folder: Path = ROOT) -> bool | None:
    """Tell whether code in a checkout is not as its commit has it; None where it is no checkout."""
    told = _git(folder, "status", "--porcelain", "--", *CODE)
    return None if told is None else bool(told)
