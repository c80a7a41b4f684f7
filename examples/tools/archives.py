"""The archives in which corpora are published: files out of them."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error)


def _files(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the wanted members of a tar or zip archive, in its order."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for member in zipped.namelist():
                if member in wanted:
                    yield member, zipped.open(member)
        return
    with tarfile.open(archive) as tarred:
        for entry in tarred:
            member = entry.name.removeprefix("./")
            content = tarred.extractfile(entry) if member in wanted else None
            if content is not None:
                yield member, content


def unpack(archive: Path, members: list[str], folder: Path) -> list[Path]:
    """Copy members of an archive into a folder; one that is missing is a ``ValueError``."""
    files = {member: folder / str(number) for number, member in enumerate(members)}
    missing = set(files)
    try:
        for member, content in _files(archive, set(files)):
            with files[member].open("wb") as out:
                shutil.copyfileobj(content, out, 1 << 20)
            missing.discard(member)
            if not missing:
                return list(files.values())
    except DAMAGED as error:
        raise ValueError(f"{archive} is cut short or damaged: {error}") from error
    names = ", ".join(sorted(missing))
    raise ValueError(f"{archive} has no file {names}: it is another archive")
