"""The archives that models come in."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairseq_entmax.checkpoints.errors import UnsafeCheckpointError, shortened
from fairseq_entmax.files.folders import temporary_folder

# What an archive may become when it is extracted; weights hardly shrink when they are packed
MOST_GROWTH = 20
MOST_BYTES_OF_SMALL = 2**30
MOST_MEMBERS = 100_000
# tarfile reads a header in one piece, and a file in small ones
MOST_BYTES_AT_ONCE = 2**20
# What the system says of names that are too long, or of a file and of a folder at once
_OF_NAMES = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL)

_COMPRESSIONS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


def replace_by_folder(path: str) -> None:
    """Put a folder with what is in an archive in the archive's place, as fairseq does.

    The folder that all of it is in, if there is one, is left out.

    Args:
        path: a tar archive, plain or packed by gzip, bzip2 or xz.

    Raises:
        UnsafeCheckpointError: it would write outside its folder, holds other than files and
            folders, or would become too large. It is still there, and nothing else is.
        ValueError: it is no such archive, or is damaged.
    """
    parent = os.path.dirname(os.path.abspath(path))
    with temporary_folder(Path(parent), ".extracted-") as folder:
        # The temporary folder itself is for this user's eyes alone, and is removed at the end
        content = os.path.join(folder, "content")
        os.mkdir(content)
        try:
            top = _extract(path, content)
        except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            reason = str(error) or "it ends too early"
            if isinstance(error, OSError) and error.errno is not None:
                if error.errno not in _OF_NAMES:
                    raise  # a full disk and the like
                reason = f"a name in it cannot be that of a file here ({error.strerror})"
            raise ValueError(f"{path} is no archive of a model, or is damaged: {reason}") from None
        # Out of the temporary folder before the archive goes: what a kill leaves here is not removed
        whole = f"{path}.extracted"
        shutil.rmtree(whole, ignore_errors=True)
        os.rename(top, whole)
        os.remove(path)
        os.rename(whole, path)


def _extract(path: str, folder: str) -> str:
    """Extract an archive; the folder that all of it is in."""
    if not hasattr(tarfile, "data_filter"):
        raise UnsafeCheckpointError(
            f"refused to extract {path}: this Python has no safe way to; use Python 3.10.12, "
            f"3.11.4 or later, or extract it yourself and give the folder"
        )
    with open(path, "rb") as packed:
        magic = packed.read(5)
        packed.seek(0)
        unpack = next((o for m, o in _COMPRESSIONS.items() if magic.startswith(m)), None)
        most = MOST_GROWTH * os.path.getsize(path) + MOST_BYTES_OF_SMALL
        file = _Bounded(unpack(packed) if unpack is not None else packed, most, path)
        with tarfile.open(fileobj=file, mode="r:") as archive:  # type: ignore[call-overload]
            members = list(_checked_members(archive, path))
            archive.extractall(folder, members=members, filter="data")
    if not any(member.isreg() for member in members):
        raise tarfile.ReadError("it holds no file")
    top = os.path.normpath(os.path.join(folder, os.path.commonpath([m.name for m in members])))
    return top if os.path.isdir(top) else os.path.dirname(top)


def _checked_members(archive: tarfile.TarFile, path: str) -> Iterator[tarfile.TarInfo]:
    """The files and folders of an archive, or an error before any of it is written."""
    for number, member in enumerate(archive):
        reason = None
        if os.path.isabs(member.name) or ".." in member.name.replace("\\", "/").split("/"):
            reason = "lies outside its folder"
        elif not (member.isreg() or member.isdir()):
            reason = "is neither a file nor a folder"
        elif number >= MOST_MEMBERS:
            reason = f"is one of more than {MOST_MEMBERS:,}"
        if reason:
            raise UnsafeCheckpointError(
                f"refused to extract {path}: {shortened(member.name)} in it {reason}; nothing of "
                f"it was written: get the model from a source that you trust"
            )
        yield member


class _Bounded:
    """A file to read from that refuses to give too much, at once and in all."""

    def __init__(self, file: Any, most: int, path: str) -> None:
        self.file, self.most, self.path = file, most, path

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_BYTES_AT_ONCE:
            raise self._too_large(f"with a header of {size:,} bytes")
        self._check(self.file.tell() + size)
        return self.file.read(size)

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET:
            self._check(position)
        return self.file.seek(position, whence)

    def tell(self) -> int:
        return self.file.tell()

    def _check(self, end: int) -> None:
        if end > self.most + MOST_BYTES_AT_ONCE:
            raise self._too_large(f"of more than {self.most:,} bytes")

    def _too_large(self, what: str) -> UnsafeCheckpointError:
        return UnsafeCheckpointError(
            f"refused to extract {self.path}: it is an archive {what}, which is too large for its "
            f"size; nothing of it was written: if you trust it, extract it yourself and give the "
            f"folder"
        )
