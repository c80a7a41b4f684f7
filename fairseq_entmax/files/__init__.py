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
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Dictionary
from pathlib import Path
from typing import BinaryIO

from fairseq_entmax.files.notes import NOTE, NOTE_LEFT, complete, note_set
from fairseq_entmax.files.temporary import TemporaryFile, locked


def check_output(output: str, overwrite: bool) -> None:
    """Refuse a file that cannot be written, before any work.

    Args:
        output: the file.
        overwrite: whether it may be there already.

    Raises:
        IsADirectoryError: it is a folder.
        FileExistsError: it is there.
        FileNotFoundError: there is no folder for it.
        ValueError: it is a device, or something else that is no ordinary file.
    """
    if os.path.isdir(output):
        raise IsADirectoryError(f"the output {output} is a folder: name a file in it")
    if os.path.exists(output) and not os.path.isfile(output):
        raise ValueError(f"the output {output} is no ordinary file: name another")
    clear_leftovers([Path(output)])
    if os.path.lexists(output) and not overwrite:
        raise FileExistsError(
            f"the output {output} exists: choose another, or replace it with --overwrite"
        )
    folder = os.path.dirname(output) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"there is no folder {folder:.900} for the output {output:.900}: make it"
        )


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears when the block ends; after an error, nothing changes.

    Args:
        target: the file, in a folder that exists.

    Raises:
        OSError: names the file.
    """
    clear_leftovers([target])
    temporary = TemporaryFile(target)
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


@contextlib.contextmanager
def whole_set(targets: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Open files for writing that appear together when the block ends; after an error, none does.

    Args:
        targets: different files, in folders that exist.

    Raises:
        OSError: names the files.
    """
    with _staged_set(targets) as staged:
        try:
            yield [temporary.file for temporary in staged]
        except OSError as error:
            # Of another file it would carry that one's name, or be a sentence already
            if error.errno is None or error.filename is not None:
                raise
            names = " and ".join(map(str, targets))
            raise OSError(f"cannot write {names}, nothing was changed: {error}") from error


def write_together(contents: Dictionary[Path, bytes]) -> None:
    """Write files; when one cannot be written, none of them changes.

    All are written under temporary names first, where most that can fail fails: a full disk, no
    permission, a name too long.

    Args:
        contents: files, in folders that exist, and what goes into them.

    Raises:
        OSError: names the file.
    """
    with _staged_set(list(contents)) as staged:
        for temporary, content in zip(staged, contents.values(), strict=True):
            temporary.write(content)


@contextlib.contextmanager
def _staged_set(targets: Sequence[Path]) -> Iterator[list[TemporaryFile]]:
    """Temporary files that are put in place together when the block ends."""
    clear_leftovers(targets)
    staged: list[TemporaryFile] = []
    notes: list[TemporaryFile] = []
    placed = 0
    try:
        for target in targets:
            staged.append(TemporaryFile(target))
        yield staged
        for temporary in staged:
            temporary.finish()
        if len(staged) > 1:
            note_set(staged, notes)
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
        for path in _files(folder, NOTE):
            complete(path)
        for pattern in (NOTE_LEFT, re.compile(rf"(?:{'|'.join(own)})\.tmp\d+")):
            for path in _files(folder, pattern):
                with locked(path) as file:
                    if file is not None:
                        path.unlink()


def _files(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """The ordinary files of a folder with such names."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [
            folder / entry.name
            for entry in entries
            if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        ]
    return []
