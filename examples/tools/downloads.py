"""The archives of a recipe: found where they are, downloaded where not, verified before use.

downloads.py rows examples/corpora.tsv de-en.tgz           # file, bytes and checksum of each
downloads.py have examples/corpora.tsv de-en.tgz raw-dir output/raw

The table has a line an archive, with tabs between file, bytes, checksum, addresses, home page and
source of the checksum; - is what nobody publishes. An archive is downloaded to the last folder.
"""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from archives import check
from messages import one_sentence, say

UNKNOWN = "-"
FULL_BELOW = 262_144  # bytes left at which a disk counts as full, as in examples/lib/common.sh
# Statuses of curl and of a server that cannot go on behind what is there
CURL_NO_PART, CURL_NO_RESUME, HTTP_NO_RANGE = 33, 36, "416"
CURL = (
    *("curl", "--fail", "--location", "--silent", "--show-error", "--retry", "3"),
    *("--connect-timeout", "30", "--speed-limit", "1000", "--speed-time", "120"),
    *("--continue-at", "-", "--write-out", "%{http_code}"),
)


class Archive(NamedTuple):
    """A line of the table; the digest is ``algorithm:hexadecimal digits``."""

    file: str
    size: str
    digest: str
    addresses: tuple[str, ...]
    page: str


def read_archive(table: Path, file: str) -> Archive:
    with table.open(encoding="utf-8", newline="") as rows:
        for row in csv.reader(rows, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row and row[0] == file:
                _, size, digest, addresses, page, *_ = row
                places = () if addresses == UNKNOWN else tuple(addresses.split())
                return Archive(file, size, digest, places, page)
    raise ValueError(f"{table} has no line for {file}")


def fault_of(path: Path, archive: Archive) -> str | None:
    """Say what is wrong with a file, as the end of a sentence; None where it is the archive."""
    size = path.stat().st_size
    if archive.size != UNKNOWN and size < int(archive.size):
        return f"has {size} of {archive.size} bytes: it is cut short"
    if archive.digest == UNKNOWN:
        try:
            check(path)
            return None
        except ValueError as error:
            return f"{error}"
    algorithm, _, expected = archive.digest.partition(":")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found == expected:
        return None
    return (
        f"has the {algorithm} checksum {found}, and {expected} is expected: it is damaged, "
        f"or another version than that of {archive.page}"
    )


def fetch(address: str, part: Path) -> int:
    command = [*CURL, "--output", str(part), address]
    for _ in range(2):
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        stuck = result.returncode in (CURL_NO_PART, CURL_NO_RESUME)
        if not stuck and result.stdout != HTTP_NO_RANGE:
            break
        part.unlink(missing_ok=True)
    return result.returncode


def download(archive: Archive, folder: Path) -> None:
    """Download an archive, by way of FILE.part, from the first address that has it, and verify it."""
    file, part = archive.file, folder / f"{archive.file}.part"
    by_hand = f"get it from {archive.page}, put it in {folder}"
    if not archive.addresses:
        raise ValueError(
            f"{file} cannot be downloaded by a program: {by_hand} (or in a folder that RAW_DIR "
            "names) and run again"
        )
    if shutil.which("curl") is None:
        raise ValueError(
            f"the command curl is not on PATH: install it, or put {file} in {folder} (it is "
            f"from {archive.page}) and run again"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for address in archive.addresses:
        if part.is_file() and f"{part.stat().st_size}" == archive.size:
            break
        say(f"download: {address}")
        if fetch(address, part) == 0:
            break
        if shutil.disk_usage(folder).free < FULL_BELOW:
            raise OSError(f"{file} cannot be written to {folder}")
    else:
        raise ValueError(
            f"{file} cannot be downloaded from {' '.join(archive.addresses)} (curl's message is "
            f"above): the location may be gone for now or for good. Run again to go on, or {by_hand} "
            "and run again"
        )
    fault = fault_of(part, archive)
    if fault is not None:
        bad = folder / f"{file}.bad"
        os.replace(part, bad)
        raise ValueError(
            f"{file} from {address} {fault}. It is kept as {bad}; run again to download it anew"
        )
    os.replace(part, folder / file)


def have(archive: Archive, folders: Sequence[Path]) -> None:
    for folder in folders:
        path = folder / archive.file
        if path.is_file():
            fault = fault_of(path, archive)
            if fault is not None:
                raise ValueError(
                    f"{path} {fault}. Remove it, or put a whole one there, and run again"
                )
            return
    download(archive, folders[-1])


def main(arguments: list[str]) -> None:
    command, table, *words = arguments
    with one_sentence():
        if command == "have":
            have(read_archive(Path(table), words[0]), [Path(folder) for folder in words[1:]])
            return
        for archive in [read_archive(Path(table), file) for file in words]:
            print(archive.file, archive.size, archive.digest, sep="\t")


if __name__ == "__main__":
    main(sys.argv[1:])
