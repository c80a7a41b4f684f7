"""Show how far fairseq-train or fairseq-generate is, and how much time is left.

fairseq-train ... 2>&1 | fairseq_progress.py train.log epochs 6
fairseq-generate ... --log-format simple --log-interval 1 2>&1 | fairseq_progress.py generate.log batches 1

The whole log is appended to the file. A terminal shows one line that changes; other outputs get a
line a minute. Warnings are shown too.
"""

from __future__ import annotations

import re
import sys
import time
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import cast

from training_logs import LINE

from fairseq_entmax.progress import RAREST, duration

OF_EPOCH = re.compile(r"epoch (\d+): +\d+ / (\d+)")
UPDATES = re.compile(r"num_updates[ =](\d+)")
VALID = re.compile(r"\| valid \|.*?\| (?:nll_)?loss ([\d.]+).*\| num_updates (\d+)")
OF_BATCHES = re.compile(r": +(\d+) / (\d+) wps=")  # of fairseq-generate
SHOWN = re.compile(r"\| (WARNING|ERROR|CRITICAL) \||\| INFO \| fairseq_entmax")


def show(text: str, stays: bool) -> None:
    """Print a text; on a terminal, the next one replaces it unless it stays."""
    print(f"\r{text:<60}" if sys.stdout.isatty() else text, end="\n" if stays else "", flush=True)


def position(line: str, unit: str, length: int) -> tuple[int, int] | None:
    """The number of updates or batches done so far, and their total."""
    if unit == "batches":
        batches = OF_BATCHES.search(line)
        return (int(batches[1]), int(batches[2])) if batches else None
    found = LINE.search(line)
    epoch, updates = (OF_EPOCH.match(found[2]), UPDATES.search(found[2])) if found else (None, None)
    if epoch is None or updates is None:
        return None
    return int(updates[1]), length * (int(epoch[2]) if unit == "epochs" else 1)


def main(path: str, unit: str, length: str) -> None:
    watched = sys.stdout.isatty()
    begin: tuple[int, float] | None = None
    last = -RAREST
    # The log gets what fairseq writes unchanged, even if it is not valid UTF-8
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace")):
        cast(TextIOWrapper, stream).reconfigure(errors=errors)
    with Path(path).open("a", encoding="utf-8", errors="surrogateescape") as log:
        for line in sys.stdin:
            log.write(line)
            log.flush()
            valid = VALID.search(line)
            if SHOWN.search(line):
                show(line.rstrip(), True)
            elif valid:
                show(f"{valid[2]} updates: validation loss {valid[1]}", True)
            elif at := position(line, unit, int(length)):
                (done, total), now = at, time.monotonic()
                if begin is None:
                    begin = done, now
                elif now - last >= (0 if watched else RAREST) and done > begin[0]:
                    last = now
                    remaining = (now - begin[1]) * max(0, total - done) / (done - begin[0])
                    what = "batches" if unit == "batches" else "updates"
                    show(f"{done:,} of {total:,} {what}, {duration(remaining)} left", not watched)
    if watched and begin:
        print()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
