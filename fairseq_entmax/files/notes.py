"""Notes of sets of files that are being replaced, by which a stopped command's set is completed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import random
import re
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fairseq_entmax.files.temporary import TemporaryFile, is_still, locked, temporary_path

logger = logging.getLogger(__name__)

FORMAT = "fairseq-entmax-unfinished"
NOTE = re.compile(FORMAT + r"-\d+\.json")
NOTE_LEFT = re.compile(FORMAT + r"-\d+\.json\.tmp\d+")
_LARGEST_NOTE = 1 << 20
_MEANING = (
    "a command was stopped while it replaced these files; any fairseq-entmax command that writes "
    "one of them completes the set first"
)


class _Note(TemporaryFile):
    """The note of a set in one folder; it is removed under its final name too."""

    def discard(self) -> None:
        if is_still(self.target, self.file):
            self.target.unlink()
        super().discard()


class _Entry(NamedTuple):
    """A file of a noted set: where it belongs, its temporary name, and the SHA-256 of it."""

    target: Path
    temporary: Path
    digest: str


def note_set(staged: list[TemporaryFile], notes: list[TemporaryFile]) -> None:
    """Put a note of the set into each of its folders, before anything is replaced.

    Args:
        staged: finished temporary files.
        notes: gets the notes.
    """
    name = f"{FORMAT}-{random.SystemRandom().randrange(10**12)}.json"
    digests = [_digest(temporary.path) for temporary in staged]
    for folder in dict.fromkeys(temporary.target.parent for temporary in staged):
        files = [
            {
                "target": os.path.relpath(temporary.target, folder),
                "number": temporary.number,
                "sha256": digest,
            }
            for temporary, digest in zip(staged, digests, strict=True)
        ]
        notes.append(_Note(folder / name))
        text = json.dumps({"format": FORMAT, "meaning": _MEANING, "files": files}, indent=1)
        notes[-1].write(text.encode())
        notes[-1].finish()
    for note in notes:
        note.put_in_place()


def complete(path: Path) -> None:
    """Rename what is left of a noted set, unless its process lives."""
    with locked(path) as file:
        entries = None if file is None else _read_note(path.parent, file)
        if entries is None:
            return
        left = [entry for entry in entries if _digest(entry.temporary) == entry.digest]
        if all(entry in left or _digest(entry.target) == entry.digest for entry in entries):
            for entry in left:
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    os.replace(entry.temporary, entry.target)
            if left:
                logger.warning(
                    "completed the files that a stopped command had left half replaced: %s",
                    ", ".join(str(entry.target) for entry in entries),
                )
        else:  # another command has written to the set since
            for entry in left:
                entry.temporary.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    # The set is settled, so its notes in other folders have nothing left to say
    for other in {entry.target.parent for entry in entries} - {path.parent}:
        with locked(other / path.name) as file:
            if file is not None and _read_note(other, file) is not None:
                (other / path.name).unlink(missing_ok=True)


def _read_note(folder: Path, file: BinaryIO) -> list[_Entry] | None:
    """The entries of a note; None where it is none. A temporary file is always beside its target."""
    try:
        note = json.loads(file.read(_LARGEST_NOTE))
        if note["format"] != FORMAT:
            return None
        entries = []
        for item in note["files"]:
            target = Path(os.path.normpath(folder / item["target"]))
            number, digest = int(item["number"]), str(item["sha256"])
            entries.append(_Entry(target, temporary_path(target, number), digest))
        return entries
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _digest(path: Path) -> str | None:
    """The SHA-256 of an ordinary file; None where there is none."""
    try:
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
            return digest.hexdigest()
    except (OSError, ValueError):
        return None
