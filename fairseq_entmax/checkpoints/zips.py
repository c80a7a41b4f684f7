"""The zip archives that checkpoints are: only those that every reader reads alike."""

from __future__ import annotations

import os
import struct
import zipfile
from typing import BinaryIO

from fairseq_entmax.checkpoints.errors import UnsafeCheckpointError

# The ends of an archive: of one below 4 GiB, where the end of a larger one is, and that
_END = struct.Struct("<4s4H2LH")
_PLACE_OF_LARGE_END = struct.Struct("<4sLQL")
_LARGE_END = struct.Struct("<4sQ2H2L4Q")
_ENDS = _LARGE_END.size + _PLACE_OF_LARGE_END.size + _END.size


def read_pickle(file: BinaryIO, path: str, most_bytes: int) -> tuple[bytes, dict[str, int]]:
    """The pickle in a checkpoint, and how many bytes each of its storages has in the file.

    Args:
        file: a zip archive, as ``torch.save`` writes it.
        path: its name, for the message.
        most_bytes: of the pickle.

    Raises:
        UnsafeCheckpointError: it would become larger when it is read.
        zipfile.BadZipFile: it is damaged, or readers of archives could differ about it. So
            what is checked here is what torch reads.
    """
    size = file.seek(0, os.SEEK_END)
    members = _count_members(file, size)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        stored = sum(entry.file_size for entry in entries)
        if stored > size or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise UnsafeCheckpointError(
                f"refused to load {path}: it is compressed, and its {size:,} bytes would become "
                f"{stored:,}; nothing of it was read: save it again with torch.save"
            )
        folder = entries[0].filename.partition("/")[0] + "/" if entries else ""
        # torch takes upper for lower case
        if len({entry.filename.lower() for entry in entries}) != members or len(entries) != members:
            raise zipfile.BadZipFile("two files in it have one name")
        for entry in entries:
            is_plain = (
                entry.filename.isascii()
                and entry.filename == entry.orig_filename
                and entry.filename.startswith(folder)
                and entry.filename != f"{folder}constants.pkl"  # a program of torch's
                and entry.compress_size == entry.file_size
                and not entry.flag_bits & 1
            )
            if not is_plain:
                raise zipfile.BadZipFile("it holds more than torch saves of a model")
        sizes = {entry.filename.removeprefix(folder): entry.file_size for entry in entries}
        if sizes.get("data.pkl", 0) > most_bytes:
            raise UnsafeCheckpointError(
                f"refused to load {path}: what it holds beside its weights has more than "
                f"{most_bytes:,} bytes; nothing of it was read: save it again without"
            )
        content = archive.read(f"{folder}data.pkl") if "data.pkl" in sizes else b""
    prefix = "data/"
    return content, {
        name.removeprefix(prefix): size for name, size in sizes.items() if name.startswith(prefix)
    }


def _count_members(file: BinaryIO, size: int) -> int:
    """How many files an archive says it holds, at its very end, with nothing between."""
    file.seek(max(0, size - _ENDS))
    tail = file.read(_ENDS)
    if tail.rfind(b"PK\x05\x06") != len(tail) - _END.size:
        raise zipfile.BadZipFile("it is cut short, or something was put behind its end")
    _, *disks, here, members, length, start, comment = _END.unpack(tail[-_END.size :])
    values = here, members, length, start
    end = size - _END.size
    place = tail[: -_END.size][-_PLACE_OF_LARGE_END.size :]
    if place.startswith(b"PK\x06\x07"):
        end = size - _ENDS
        if len(tail) < _ENDS or _PLACE_OF_LARGE_END.unpack(place)[1:] != (0, end, 1):
            raise zipfile.BadZipFile("its end is not where it says")
        magic, own, _, _, *more, here, members, length, start = _LARGE_END.unpack(
            tail[: _LARGE_END.size]
        )
        disks += more
        large = here, members, length, start
        agrees = all(
            few in (many, most)
            for few, many, most in zip(
                values, large, (0xFFFF,) * 2 + (0xFFFFFFFF,) * 2, strict=True
            )
        )
        if magic != b"PK\x06\x06" or own != _LARGE_END.size - 12 or not agrees:
            raise zipfile.BadZipFile("its two ends do not agree")
    if comment or any(disks) or here != members or start + length != end:
        raise zipfile.BadZipFile("its list of files is not where it says")
    return members
