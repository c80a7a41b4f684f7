"""The archives in which corpora are published: files out of them, and whether they are whole."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, BinaryIO

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error)


def extract(archive: BinaryIO, name: str, members: dict[str, Path]) -> None:
    """Copy members of a tar or zip archive to files; one that is missing is a ``ValueError``."""
    missing = dict(members)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                for member in missing.keys() & set(zipped.namelist()):
                    with zipped.open(member) as part:
                        _copy(part, missing.pop(member))
        else:
            archive.seek(0)
            with tarfile.open(fileobj=archive, mode="r:*") as tarred:
                for entry in tarred:
                    member = entry.name.removeprefix("./")
                    source = tarred.extractfile(entry) if member in missing else None
                    if source is not None:
                        _copy(source, missing.pop(member))
                    if not missing:
                        break
    except DAMAGED as error:
        raise ValueError(f"{name} is cut short or damaged: {error}") from error
    if missing:
        raise ValueError(f"{name} has no file {', '.join(missing)}: it is another archive")


def _copy(source: IO[bytes], target: Path) -> None:
    with target.open("wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)


def unpack(archive: Path, members: list[str], folder: Path) -> list[Path]:
    files = [folder / str(number) for number in range(len(members))]
    with archive.open("rb") as opened:
        extract(opened, str(archive), dict(zip(members, files, strict=True)))
    return files


def append_text(archive: Path, member: str, file: Path) -> None:
    """Append a member of an archive, a whole UTF-8 text, as it is to a file."""
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        (unpacked,) = unpack(archive, [member], Path(folder))
        with unpacked.open("rb") as lines, file.open("ab") as out:
            line = b"\n"
            for number, line in enumerate(lines, start=1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise ValueError(f"{archive}: line {number} of {member} is no UTF-8") from error
                out.write(line)
            if not line.endswith(b"\n"):
                raise ValueError(f"{archive}: {member} does not end with a line's end")


def check(path: Path) -> None:
    """Read an archive to its end; a ``ValueError`` says that it is cut short or damaged."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
                if damaged is not None:
                    raise zipfile.BadZipFile(f"{damaged} does not fit its checksum")
        else:
            with gzip.open(path) as stream:
                while stream.read(1 << 22):
                    pass
    except DAMAGED as error:
        raise ValueError(f"is cut short or damaged ({error})") from error
