"""Count how many malicious files do what they are made for: ``python -m tests.security.count``.

Each goes each way in a process of its own, with little memory and time, so that it can be run
on a version of the package that lets them through.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch

from tests.security import archives, corpus, good, roads

MEMORY = 6 * 2**30
SECONDS = 60


def attempt(work, quiet=True):
    """What came of work in a process of its own: loaded, refused, or how it ended."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.alarm(SECONDS)
        if quiet:
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        status = 0
        try:
            work()
        except MemoryError:
            status = 3
        except (ValueError, RuntimeError) as error:
            status = 3 if "alloc" in str(error) else 2 if "refused" in str(error) else 4
        except BaseException:
            status = 4
        os._exit(status)
    status = os.waitpid(child, 0)[1]
    names = {0: "loaded", 2: "refused", 3: "out of memory", 4: "other error"}
    return names[os.WEXITSTATUS(status)] if os.WIFEXITED(status) else "killed"


def main(arguments):
    folder = Path(tempfile.mkdtemp())
    data, good_file = folder / "data", folder / "good.pt"
    good.write_data(data)
    state = good.harmless(data)
    torch.save(state, good_file)
    ran, filled, seen = {}, {}, Counter()
    for kind in {**corpus.RUNS_CODE, **corpus.FILLS_MEMORY}:
        for road, load in roads.IN_PROCESS.items():
            mark = folder / f"mark-{kind}-{road}"
            path = corpus.write(kind, state, folder, mark)
            outcome = attempt(lambda load=load, path=path: load(path, data, good_file))
            seen[outcome] += 1
            if mark.exists():
                ran.setdefault(kind, []).append(road)
            if outcome in ("out of memory", "killed"):
                filled.setdefault(kind, []).append(road)
            path.unlink()
    for title, found in (("ran code", ran), ("filled memory or time", filled)):
        print(f"{title}: {len(found)} kinds, {sum(map(len, found.values()))} ways")
        for kind, ways in found.items():
            print(f"  {kind}: {', '.join(ways)}")
    print(dict(seen))
    escaped = []
    for kind in archives.ARCHIVES:
        place = folder / f"archive-{kind}"
        place.mkdir()
        archives.write_archive(kind, place / "model.tar.gz", folder / f"mark-{kind}")
        load = roads.EntmaxTransformerModel.from_pretrained
        attempt(lambda load=load, place=place: load(str(place / "model.tar.gz")))
        if archives.touched(folder / f"mark-{kind}"):
            escaped.append(kind)
    print(
        f"wrote outside their folder: {len(escaped)} of {len(archives.ARCHIVES)} archives", escaped
    )


if __name__ == "__main__":
    main(sys.argv[1:])
