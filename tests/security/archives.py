"""Malicious archives, made on the spot: each would leave a mark if it wrote elsewhere."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path


# Archives that write outside their folder. Each function gets an open archive.
def _add(archive, name, content=b"x", **fields):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for field, value in fields.items():
        setattr(member, field, value)
    archive.addfile(member, io.BytesIO(content) if member.isreg() else None)


def _link(kind, *steps):
    def write(archive, mark):
        for name, target in steps:
            target = target.format(mark=mark, folder=os.path.dirname(mark))
            _add(archive, name, b"", type=kind, linkname=target)
        _add(archive, f"model/link/{os.path.basename(mark)}")

    return write


ARCHIVES = {
    "parent_folder": lambda archive, mark: _add(archive, "../" * 20 + mark[1:]),
    "parent_in_the_middle": lambda archive, mark: _add(archive, "m/" + "../" * 20 + mark[1:]),
    "absolute": lambda archive, mark: _add(archive, mark),
    "symbolic_link": _link(tarfile.SYMTYPE, ("model/link", "{folder}")),
    "relative_symbolic_link": _link(tarfile.SYMTYPE, ("model/link", "../" * 20 + "{folder}")),
    "symbolic_links_in_steps": _link(
        tarfile.SYMTYPE, ("model/up", ".."), ("model/link", "up/" + "../" * 20 + "{folder}")
    ),
    "hard_link": lambda archive, mark: (
        _add(archive, "model/link", b"", type=tarfile.LNKTYPE, linkname=mark + ".precious"),
        _add(archive, "model/link", b"changed"),
    ),
    "device": lambda archive, mark: _add(archive, "model/null", b"", type=tarfile.CHRTYPE),
    "pipe": lambda archive, mark: _add(archive, "model/pipe", b"", type=tarfile.FIFOTYPE),
    "folder_that_is_moved": lambda archive, mark: _add(
        archive, mark + ".precious.folder", b"", type=tarfile.DIRTYPE
    ),
}


def write_archive(kind, path, mark):
    """Write a malicious archive, beside good members; and what of others it could touch."""
    Path(f"{mark}.precious").write_text("precious")
    Path(f"{mark}.precious.folder").mkdir()
    with tarfile.open(path, "w:gz") as archive:
        if kind != "folder_that_is_moved":
            _add(archive, "model/dict.a.txt", b"w0 9\n")
        ARCHIVES[kind](archive, str(mark))


def touched(mark):
    """Whether an archive did anything outside its folder."""
    return (
        Path(mark).exists()
        or not Path(f"{mark}.precious.folder").is_dir()
        or Path(f"{mark}.precious").read_text() != "precious"
    )
