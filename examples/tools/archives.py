"""The archives in which corpora are published: files out of them, and whether they are whole."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, BinaryIO

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error)


def extract(archive: BinaryIO, name: str, members: dict[str, Path]) -> None:
    """Copy members of a tar or zip archive to files.

    Raises:
        ValueError: a member is missing, or the archive is damaged; the message says which.
    """
    missing = dict(members)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                for name_inside in zipped.namelist():
                    if name_inside in missing:
                        with zipped.open(name_inside) as part:
                            _copy(part, missing.pop(name_inside))
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
    """Copy members to files in a folder; ``inner.tgz!file`` is a file of an archive inside."""
    files = [folder / str(number) for number in range(len(members))]
    inner = {member.partition("!")[0] for member in members if "!" in member}
    with archive.open("rb") as outer:
        if not inner:
            extract(outer, str(archive), dict(zip(members, files, strict=True)))
            return files
        (name,) = inner
        middle = folder / "inner"
        extract(outer, str(archive), {name: middle})
    with middle.open("rb") as opened:
        inside = [member.partition("!")[2] for member in members]
        extract(opened, f"{archive}!{name}", dict(zip(inside, files, strict=True)))
    middle.unlink()
    return files


def append_text(archive: Path, member: str, file: Path) -> None:
    """Append a member of an archive, as it is, to a file.

    Raises:
        ValueError: the archive is damaged or another one, or the member is no whole UTF-8 text.
    """
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
    """Read an archive to its end.

    Raises:
        ValueError: it is cut short or damaged.
    """
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


def checksum(algorithm: str, path: Path) -> str:
    """The checksum of a file, in hexadecimal digits."""
    digest = hashlib.new(algorithm)
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
