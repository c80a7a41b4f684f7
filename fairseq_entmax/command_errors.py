"""Ending fairseq's commands with an error in one sentence, whichever process meets it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

# The exit status of a command that ended with an error in one sentence
STOPPED = 2
# Seconds that the first of several processes has to print the error for all
TIME_OF_FIRST = 5.0


def stop_command(error: Exception) -> None:
    """In one of fairseq's commands, print the error in one sentence and exit with status 2.

    Of several processes that train together the first prints it; the others wait for their launcher
    to end them. Outside fairseq's commands this does nothing, and the caller raises.
    """
    command = running_command()
    if not command:
        return
    if _rank() > 0:
        time.sleep(TIME_OF_FIRST)
    print(f"{command}: error: {error}", file=sys.stderr)
    if threading.active_count() > 1 or multiprocessing.active_children() or _are_several():
        # A thread that loads batches may be in torch's C++ code. Python would end it there at
        # exit, which aborts the process with another exit status; and processes that train
        # together would wait for each other.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(ValueError):  # raised outside the main thread
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's raises when a worker ends
        for worker in multiprocessing.active_children():  # which would print a traceback
            worker.kill()
        os._exit(STOPPED)
    sys.exit(STOPPED)


def running_command() -> str:
    """The name of the running fairseq command, also as ``python -m fairseq_cli.train``; or ''."""
    folder, name = os.path.split(os.path.abspath(sys.argv[0] if sys.argv else ""))
    if name.startswith("fairseq-") and name != "fairseq-entmax":  # which reports errors itself
        return name
    if os.path.basename(folder) == "fairseq_cli":
        return f"fairseq-{os.path.splitext(name)[0].replace('_', '-')}"
    return ""


def _rank() -> int:
    """The number of this process among those that train together; 0 is the first or only one."""
    if _are_several():
        return torch.distributed.get_rank()
    rank = os.environ.get("RANK", "") if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return int(rank) if rank.isdecimal() else 0


def _are_several() -> bool:
    """Whether this process has joined others to train together."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


@contextmanager
def stopping_command() -> Iterator[None]:
    """Call :func:`stop_command` on a ``ValueError`` in the block, then raise it again."""
    try:
        yield
    except ValueError as error:
        stop_command(error)
        raise
