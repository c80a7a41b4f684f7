"""Find the archives of a recipe, or download them, and verify them before use.

downloads.py examples/corpora.tsv de-en.tgz raw-dir output/raw

The table has one line for each archive: file, bytes, checksum, addresses, home page and source of
the checksum, with tabs between them; - is what nobody publishes. Downloads go to the last folder.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from messages import one_sentence, say

UNKNOWN = "-"
CURL = (
    *("curl", "--fail", "--location", "--silent", "--show-error", "--retry", "3"),
    *("--connect-timeout", "30", "--speed-limit", "1000", "--speed-time", "120"),
    *("--continue-at", "-", "--output"),
)
# Statuses of curl and of HTTP from servers that cannot resume a download
CANNOT_GO_ON, NO_SUCH_RANGE = (33, 36), "416"


class Archive(NamedTuple):
    """A line of the table; the digest is ``algorithm:hexadecimal digits``."""

    file: str
    size: str
    digest: str
    addresses: str
    page: str


def read_archive(table: Path, file: str) -> Archive:
    for line in table.read_text(encoding="utf-8").split("\n"):
        if line.startswith(f"{file}\t"):
            return Archive(*line.split("\t")[:5])
    raise ValueError(f"{table} has no line for {file}")


def _fetched(part: Path, address: str) -> tuple[int, str]:
    """Start or resume a download; return the statuses of curl and of HTTP."""
    command = [*CURL, str(part), "--write-out", "%{http_code}", address]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout


def verify(path: Path, archive: Archive) -> None:
    """Raise ``ValueError`` if a file is not the archive, as far as size and checksum are known."""
    size = path.stat().st_size
    if archive.size != UNKNOWN and size < int(archive.size):
        raise ValueError(f"{path} has {size} of {archive.size} bytes: run again without it")
    algorithm, _, expected = archive.digest.partition(":")
    if expected:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, algorithm).hexdigest()
        if found != expected:
            raise ValueError(
                f"{path} has the {algorithm} checksum {found}, but {expected} is expected: it is "
                f"damaged, or a different version from that of {archive.page}; run again without it"
            )


def download(archive: Archive, folder: Path) -> None:
    """Download to FILE.part from the first address that has the archive; resume if possible."""
    part = folder / f"{archive.file}.part"
    addresses = archive.addresses.split() if archive.addresses != UNKNOWN else []
    folder.mkdir(parents=True, exist_ok=True)
    for address in addresses:
        say(f"download: {address}")
        status, answer = _fetched(part, address)
        cannot = status in CANNOT_GO_ON or (status and answer == NO_SUCH_RANGE)
        if cannot and part.exists():
            part.unlink()
            status, _ = _fetched(part, address)
        if status == 0:
            try:
                verify(part, archive)
            except ValueError:
                part.unlink()
                raise
            os.replace(part, folder / archive.file)
            return
    raise ValueError(
        f"{archive.file} could not be downloaded: run again to continue, or get it from "
        f"{archive.page}, put it in {folder} (or in the folder named by RAW_DIR) and run again"
    )


def have(archive: Archive, folders: Sequence[Path]) -> None:
    for folder in folders:
        if (folder / archive.file).is_file():
            return verify(folder / archive.file, archive)
    download(archive, folders[-1])


def main(arguments: list[str]) -> None:
    table, file, *folders = arguments
    with one_sentence():
        have(read_archive(Path(table), file), [Path(folder) for folder in folders])


if __name__ == "__main__":
    main(sys.argv[1:])
