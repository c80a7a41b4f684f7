"""Read files from the archives in which corpora are published."""

from __future__ import annotations

import difflib
import gzip
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO

from messages import say

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error)
CHECK = "RECIPE_CHECK"  # set in the environment by prepare.sh --check: files are only looked for
NEAR = 8  # how many names of an archive are shown if it lacks a file


def _files(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes] | None]]]:
    """Yield, in order, the name of each member of a tar or zip archive, and what opens it."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for member in zipped.namelist():
                yield member, partial(zipped.open, member)
        return
    with tarfile.open(archive) as tarred:
        for entry in tarred:
            yield entry.name.removeprefix("./"), partial(tarred.extractfile, entry)


def _nearest(wanted: Sequence[str], names: Sequence[str]) -> str:
    near = [one for name in wanted for one in difflib.get_close_matches(name, names)]
    shown = list(dict.fromkeys([*near, *names]))[:NEAR]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"{', '.join(shown) or 'nothing'}{more}"


def unpack(archive: Path, members: list[str], folder: Path) -> list[Path]:
    """Copy members of an archive into a folder; raise ``ValueError`` if one is missing.

    The possible names of a member are separated by |. Under `CHECK` nothing is copied, and the
    program ends here.
    """
    places = {name: number for number, x in enumerate(members) for name in x.split("|")}
    files = [folder / str(number) for number in range(len(members))]
    missing, names = set(range(len(members))), []
    try:
        for name, opened in _files(archive):
            names.append(name)
            place = places.get(name)
            if place not in missing:
                continue
            missing.discard(place)
            content = None if CHECK in os.environ else opened()
            if content is not None:
                with files[place].open("wb") as out:
                    shutil.copyfileobj(content, out, 1 << 20)
            if not missing and CHECK not in os.environ:
                return files
    except DAMAGED as error:
        raise ValueError(f"{archive} is cut short or damaged: {error}") from error
    if missing:
        wanted = [members[number].replace("|", " or ") for number in sorted(missing)]
        raise ValueError(
            f"{archive} has no file {', '.join(wanted)}: this is a different archive; it has "
            f"{_nearest(wanted, names)}"
        )
    found = ", ".join(name for name in names if name in places)
    say(f"{archive.name}: {len(names)} files, including {found}")
    raise SystemExit
