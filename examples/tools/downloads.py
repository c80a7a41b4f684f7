"""The archives of a recipe: found where they are, downloaded where not, verified before use.

downloads.py rows examples/corpora.tsv de-en.tgz           # file, bytes and checksum of each
downloads.py have examples/corpora.tsv de-en.tgz raw-dir output/raw

The table has a line an archive, with tabs between file, bytes, checksum, addresses, home page and
source of the checksum; - is what nobody publishes.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from archives import check, checksum
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


@dataclass(frozen=True)
class Archive:
    """A line of the table.

    Attributes:
        file: its name.
        size: bytes, in digits, or `UNKNOWN`.
        digest: ``algorithm:hexadecimal digits``, or `UNKNOWN`.
        addresses: where it can be downloaded; none where only a person can.
        page: its home page.
    """

    file: str
    size: str
    digest: str
    addresses: tuple[str, ...]
    page: str


def read_archive(table: Path, file: str) -> Archive:
    """Read the line of a file.

    Raises:
        ValueError: the table has none.
    """
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
        except ValueError as error:
            return f"{error}"
        return None
    algorithm, _, expected = archive.digest.partition(":")
    try:
        found = checksum(algorithm, path)
    except (OSError, ValueError) as error:
        return f"cannot be checked ({error})"
    if found != expected:
        return (
            f"has the {algorithm} checksum {found}, and {expected} is expected: it is damaged, "
            f"or another version than that of {archive.page}"
        )
    return None


def fetch(address: str, part: Path) -> int:
    """Download to a file, behind what is there where the server can; curl's exit status."""
    command = [*CURL, "--output", str(part), address]
    for _ in range(2):
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        stuck = result.returncode in (CURL_NO_PART, CURL_NO_RESUME)
        if not stuck and result.stdout != HTTP_NO_RANGE:
            break
        part.unlink(missing_ok=True)
    return result.returncode


def download(archive: Archive, folder: Path) -> None:
    """Download an archive, from the first of its addresses that has it, and verify it.

    What arrives is `folder`/<file>.part until it is verified, so a download that was stopped
    goes on.

    Raises:
        ValueError: it cannot be downloaded, or is not what the table says.
        OSError: the disk is full.
    """
    file, part = archive.file, folder / f"{archive.file}.part"
    if not archive.addresses:
        raise ValueError(
            f"{file} cannot be downloaded by a program: get it from {archive.page}, put it in "
            f"{folder} (or in a folder that RAW_DIR names) and run again"
        )
    if shutil.which("curl") is None:
        raise ValueError(
            f"the command curl is not on PATH: install it, or put {file} in {folder} (it is "
            f"from {archive.page}) and run again"
        )
    folder.mkdir(parents=True, exist_ok=True)
    status = 0
    for address in archive.addresses:
        if part.is_file() and f"{part.stat().st_size}" == archive.size:
            status = 0
            break
        say(f"download: {address}")
        status = fetch(address, part)
        if status == 0:
            break
        if shutil.disk_usage(folder).free < FULL_BELOW:
            raise OSError(f"{file} cannot be written to {folder}")
    if status != 0:
        raise ValueError(
            f"{file} cannot be downloaded from {' '.join(archive.addresses)} (curl's message is "
            "above): the location may be gone for now or for good. Run again to go on, or get "
            f"it from {archive.page}, put it in {folder} and run again"
        )
    fault = fault_of(part, archive)
    if fault is not None:
        bad = folder / f"{file}.bad"
        os.replace(part, bad)
        raise ValueError(
            f"{file} from {address} {fault}. It is kept as {bad}; run again to download it anew"
        )
    os.replace(part, folder / file)


def have(archive: Archive, folders: Sequence[Path]) -> Path:
    """The place of an archive in the first folder that has it, or downloaded to the last.

    Raises:
        ValueError: it is not what the table says, or cannot be downloaded.
    """
    for folder in folders:
        path = folder / archive.file
        if path.is_file():
            fault = fault_of(path, archive)
            if fault is not None:
                raise ValueError(
                    f"{path} {fault}. Remove it, or put a whole one there, and run again"
                )
            return path
    download(archive, folders[-1])
    return folders[-1] / archive.file


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    rows = commands.add_parser("rows", help="print file, bytes and checksum of archives")
    rows.add_argument("table", type=Path)
    rows.add_argument("files", nargs="*")
    having = commands.add_parser("have", help="download an archive where it is missing")
    having.add_argument("table", type=Path)
    having.add_argument("file")
    having.add_argument("folders", type=Path, nargs="+", help="the last is downloaded to")
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "have":
            have(read_archive(options.table, options.file), options.folders)
            return
        for archive in [read_archive(options.table, file) for file in options.files]:
            print(archive.file, archive.size, archive.digest, sep="\t")


if __name__ == "__main__":
    main()
