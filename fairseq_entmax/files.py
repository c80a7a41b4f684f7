"""Files that appear whole, several together or not at all, whatever stops the process.

A file is written as ``NAME.tmp<number>`` beside its place, and renamed when it is whole. A set of
files is replaced by several renames. Before the first of them a note of the set, with the
contents' hashes, is put into each folder; it goes after the last. So a process killed at any
moment leaves one of three states: nothing has changed, the set is whole, or a note says which
files are still to be renamed. What it leaves is dealt with by :func:`clear_leftovers`, which all
writing begins with: a noted set is completed, other temporary files are removed.

Whether a temporary file still has a writer is told by a lock (``flock``), which the writer holds
until the file is in its place, and which ends with the process, however it ends. The number in
the name cannot tell: it may be of another machine or container on the same file system, or used
again. Nor can the file's age: a large file takes its time. Where a file system has no locks,
nothing is removed or completed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

logger = logging.getLogger(__name__)

FORMAT = "fairseq-entmax-unfinished"
_NOTE = re.compile(FORMAT + r"-\d+\.json")
_NOTE_LEFT = re.compile(FORMAT + r"-\d+\.json\.tmp\d+")
_LARGEST_NOTE = 1 << 20
_MEANING = (
    "a command was stopped while it replaced these files; any fairseq-entmax command that writes "
    "one of them completes the set first"
)


def check_output(output: str, overwrite: bool) -> None:
    """Refuse a file that cannot be written, before any work.

    Args:
        output: the file.
        overwrite: whether it may be there already.

    Raises:
        IsADirectoryError: it is a folder.
        FileExistsError: it is there.
        FileNotFoundError: there is no folder for it.
    """
    if os.path.isdir(output):
        raise IsADirectoryError(f"the output {output} is a folder: name a file in it")
    clear_leftovers([Path(output)])
    if os.path.lexists(output) and not overwrite:
        raise FileExistsError(
            f"the output {output} exists: choose another, or replace it with --overwrite"
        )
    folder = os.path.dirname(output) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"there is no folder {folder} for the output {output}: make it")


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears when the block ends; after an error, nothing changes.

    Args:
        target: the file, in a folder that exists.

    Raises:
        OSError: names the file.
    """
    clear_leftovers([target])
    temporary = _Temporary(target)
    try:
        try:
            yield temporary.file
        except OSError as error:
            # Of another file it would carry that one's name, or be a sentence already
            if error.errno is None or error.filename is not None:
                raise
            raise temporary.error(error) from error
        temporary.finish()
        temporary.put_in_place()
    finally:
        temporary.discard()


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files; when one cannot be written, none of them changes.

    All are written under temporary names first, where most that can fail fails: a full disk, no
    permission, a name too long.

    Args:
        contents: files, in folders that exist, and what goes into them.

    Raises:
        OSError: names the file.
    """
    clear_leftovers(contents)
    staged: list[_Temporary] = []
    notes: list[_Temporary] = []
    placed = 0
    try:
        for target, content in contents.items():
            staged.append(_Temporary(target))
            staged[-1].write(content)
        if len(contents) > 1:
            _note(staged, contents, notes)
        for temporary in staged:
            temporary.put_in_place()
            placed += 1
    except OSError as error:
        if 0 < placed < len(staged):
            raise OSError(
                f"{error}; {placed} of {len(staged)} files are replaced, and the same command "
                f"completes the set when the reason is gone"
            ) from error
        raise
    finally:
        if placed in (0, len(staged)):
            # The notes first: temporary files without a note are no set
            for temporary in (*notes, *staged):
                temporary.discard()
        for temporary in (*notes, *staged):
            temporary.file.close()


def clear_leftovers(targets: Iterable[Path]) -> None:
    """Complete or remove what killed processes left of files that are about to be written.

    A set that was half replaced is completed, all of it. Other temporary files of ``targets``
    are removed. What a living process is writing stays, and so does what is no ordinary file.

    Args:
        targets: files; their folders need not exist.
    """
    names: dict[Path, list[str]] = {}
    for target in targets:
        names.setdefault(target.parent, []).append(re.escape(target.name))
    for folder, own in names.items():
        for path in _files(folder, _NOTE):
            _complete(path)
        for pattern in (_NOTE_LEFT, re.compile(rf"(?:{'|'.join(own)})\.tmp\d+")):
            for path in _files(folder, pattern):
                with _held(path) as file:
                    if file is not None:
                        path.unlink()


class _Temporary:
    """A file under a temporary name, locked while it is open."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.number = os.getpid()
        while True:
            self.path = _temporary(target, self.number)
            try:
                self.file = self.path.open("xb")
            except FileExistsError:  # of another machine, or another thread
                self.number = random.randrange(10**9)
                continue
            except OSError as error:
                raise self.error(error) from error
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self.file, fcntl.LOCK_EX)
            if _is_still(self.path, self.file):
                return
            self.file.close()  # taken for a leftover, between opening and locking

    def write(self, content: bytes) -> None:
        try:
            self.file.write(content)
        except OSError as error:
            raise self.error(error) from error
        self.finish()

    def finish(self) -> None:
        """What was written is on the disk when this returns."""
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as error:
            raise self.error(error) from error

    def put_in_place(self) -> None:
        try:
            os.replace(self.path, self.target)
        except OSError as error:
            raise OSError(f"cannot write {self.target}: {error}") from error

    def discard(self) -> None:
        """Remove the temporary file if it is still there."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        with contextlib.suppress(OSError):  # a full disk, of what is not wanted any more
            self.file.close()

    def error(self, error: OSError) -> OSError:
        return OSError(f"cannot write {self.target}, nothing was changed: {error}")


class _Note(_Temporary):
    """The note of a set in one folder; it is removed under its final name too."""

    def discard(self) -> None:
        if _is_still(self.target, self.file):
            self.target.unlink()
        super().discard()


class _Entry(NamedTuple):
    """A file of a noted set: where it belongs, its temporary name, and the SHA-256 of it."""

    target: Path
    temporary: Path
    digest: str


def _note(
    staged: list[_Temporary], contents: Mapping[Path, bytes], notes: list[_Temporary]
) -> None:
    """Put a note of the set into each of its folders, before anything is replaced."""
    name = f"{FORMAT}-{random.SystemRandom().randrange(10**12)}.json"
    digests = [hashlib.sha256(content).hexdigest() for content in contents.values()]
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
    for note in notes:
        note.put_in_place()


def _complete(path: Path) -> None:
    """Rename what is left of a noted set, unless its process lives."""
    with _held(path) as file:
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
        with _held(other / path.name) as file:
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
            entries.append(_Entry(target, _temporary(target, number), digest))
        return entries
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _temporary(target: Path, number: int) -> Path:
    return target.with_name(f"{target.name}.tmp{number}")


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


def _files(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """The ordinary files of a folder with such names."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [
            folder / entry.name
            for entry in entries
            if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        ]
    return []


@contextlib.contextmanager
def _held(path: Path) -> Iterator[BinaryIO | None]:
    """A file, locked; None where it is gone, not ours, or of a process that lives."""
    with contextlib.ExitStack() as stack:
        try:
            # For writing: over a network, only that can be locked
            file = stack.enter_context(path.open("r+b"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        yield file if _is_still(path, file) else None


def _is_still(path: Path, file: BinaryIO) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(file.fileno()))
    except (OSError, ValueError):
        return False
