"""What is shown of a training: how far it is, and how long is left; the whole log goes to a file.

fairseq-train ... 2>&1 | training_progress.py train.log epochs 6

On a terminal one line changes; elsewhere there is a line a minute. Warnings are shown too.
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

RAREST = 60.0  # seconds between two lines where nobody watches
OF_EPOCH = re.compile(r"epoch (\d+): +\d+ / (\d+)")
UPDATES = re.compile(r"num_updates[ =](\d+)")
LOSS = re.compile(r"[|,] (?:nll_)?loss[ =]([\d.]+)")
SHOWN = re.compile(r"\| (WARNING|ERROR|CRITICAL) \||\| INFO \| fairseq_entmax")


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    hours, minutes = divmod(minutes, 60)
    return (f"{hours} h " if hours else "") + f"{minutes} min"


def show(text: str, stays: bool) -> None:
    """Of what does not stay, the next text takes the place."""
    print(f"\r{text:<60}" if sys.stdout.isatty() else text, end="\n" if stays else "", flush=True)


def main(path: str, unit: str, length: str) -> None:
    watched = sys.stdout.isatty()
    begin: tuple[int, float] | None = None
    last = -RAREST
    # What fairseq writes passes as it is, whatever it is
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace")):
        cast(TextIOWrapper, stream).reconfigure(errors=errors)
    with Path(path).open("a", encoding="utf-8", errors="surrogateescape") as log:
        for line in sys.stdin:
            log.write(line)
            log.flush()
            found = LINE.search(line)
            updates = UPDATES.search(found[2]) if found else None
            if SHOWN.search(line):
                show(line.rstrip(), True)
            elif found and updates and found[1] == "valid" and (loss := LOSS.search(found[2])):
                show(f"{updates[1]} updates: validation loss {loss[1]}", True)
            elif found and updates and (epoch := OF_EPOCH.match(found[2])):
                done, now = int(updates[1]), time.monotonic()
                total = int(length) * (int(epoch[2]) if unit == "epochs" else 1)
                if begin is None:
                    begin = done, now
                elif now - last >= (0 if watched else RAREST) and done > begin[0]:
                    last = now
                    left = (now - begin[1]) * max(0, total - done) / (done - begin[0])
                    show(f"{done:,} of {total:,} updates, {duration(left)} left", not watched)
    if watched and begin:
        print()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
