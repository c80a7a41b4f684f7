"""Files that are always complete, whatever stops the process that writes them.

A file is written as ``NAME.tmp<number>`` in the same folder, flushed to disk, and then renamed. A
process that is killed leaves the old file or the new one, and perhaps a temporary file, which the
next process that writes the same file removes. Files that are written together are all on disk
before the first is renamed; a kill between two renames leaves some new and some old, all complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Dictionary
from pathlib import Path
from typing import BinaryIO


def check_target(path: str | os.PathLike[str], option: str, overwrite: bool) -> Path:
    """Return the file to write, with links followed; an error names ``option`` if it is refused."""
    name = os.fspath(path)
    target = Path(os.path.realpath(name))
    if not name or target.is_dir():
        raise ValueError(f"{option} got '{name}': give the name of a file")
    if target.exists() and not target.is_file():
        raise ValueError(f"{option} got '{name}', which is not a regular file: give another name")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{option} got '{name:.900}': there is no folder {target.parent!s:.900}: make it first"
        )
    if target.exists() and not overwrite:
        raise FileExistsError(
            f"{option} got '{name}', which exists: give another name, or --overwrite"
        )
    return target


def refuse_inputs(targets: Iterable[Path], inputs: Dictionary[str, str | None]) -> None:
    """Refuse to overwrite ``inputs`` (description to file), whatever ``--overwrite`` says."""
    read = {Path(os.path.realpath(name)): what for what, name in inputs.items() if name}
    for target in targets:
        if target in read:
            raise ValueError(
                f"{target} is {read[target]}, and would be replaced: give another name"
            )


@contextlib.contextmanager
def whole_set(targets: Sequence[Path]) -> Iterator[Sequence[BinaryIO]]:
    """Open files that are put in place when the block ends, or not at all after an error."""
    temporaries = [_temporary(target) for target in targets]
    try:
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(path.open("xb")) for path in temporaries]
            yield files
            for file in files:
                file.flush()
                os.fsync(file.fileno())
        for path, target in zip(temporaries, targets, strict=True):
            os.replace(path, target)
    except OSError as error:
        # An error with a file name, or without a system error number, says enough
        if error.errno is None or error.filename is not None:
            raise
        names = " and ".join(map(str, targets))
        raise OSError(f"cannot write {names}, nothing was changed: {error}") from error
    finally:
        for path in temporaries:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """Open a file that is put in place when the block ends; after an error, nothing changes."""
    with whole_set([target]) as (file,):
        yield file


def write_together(contents: Dictionary[Path, bytes]) -> None:
    """Write files; if one of them cannot be written, none changes."""
    with whole_set(list(contents)) as files:
        for file, content in zip(files, contents.values(), strict=True):
            file.write(content)


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the hash of a file's content, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _temporary(target: Path) -> Path:
    """A new name beside the target; removes temporary files that earlier writes of it left."""
    pattern = re.compile(re.escape(target.name) + r"\.tmp\d+")
    with contextlib.suppress(FileNotFoundError):
        for path in target.parent.iterdir():
            if pattern.fullmatch(path.name):
                path.unlink(missing_ok=True)
    return target.with_name(f"{target.name}.tmp{secrets.randbelow(10**9)}")
