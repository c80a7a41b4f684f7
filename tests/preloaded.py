"""The installed commands, started in a process that has already imported torch and fairseq.

Their imports take about five seconds of CPU time, longer than most of what the tests run. A server
therefore imports them once and forks for each command. The child takes over the caller's arguments,
environment, working folder and open files, and calls the entry point of the installed command.
Modules of fairseq_entmax and fairseq_cli are not imported beforehand, because they read the
environment and set up logging on import.

    python -m tests.preloaded SOCKET            # the server, until its standard input ends

`path` has commands for shell scripts, which ask the server through `tests/preloaded_client.py`.
"""

import atexit
import contextlib
import copy
import functools
import gc
import importlib.metadata
import json
import logging
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests import preloaded_client

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (
    *("fairseq-train", "fairseq-generate", "fairseq-interactive", "fairseq-preprocess"),
    *("fairseq-score", "fairseq-hydra-train", "fairseq-eval-lm", "fairseq-validate"),
    "fairseq-entmax",
)
# Programs of examples/tools that import torch are forked, too
PYTHON = "python3"
OF_TORCH = (
    "*environment.py\\ mapping*|*environment.py\\ gpus*|*summary_models.py\\ known*|"
    "*pruning_table.py*|*predictions.py\\ write*|*predictions.py\\ speed*|*claims_record.py*|*claims_speed.py*"
)
STARTUP = 120  # seconds that the server's own imports may take
LARGEST = 1 << 20  # bytes of a request
PAUSE = 0.01  # seconds between two checks of a running command
# Python reads these at startup, so a command with another value has to start by itself
READ_AT_START = ("PYTHONPATH", "PYTHONHASHSEED", "PYTHONSTARTUP", "OMP_NUM_THREADS")


# --- for the caller of a command ------------------------------------------------


def is_possible(environment: Mapping[str, str]) -> bool:
    """Whether a forked command would run in the same way in this environment."""
    if not sys.platform.startswith("linux"):
        return False  # on other systems, libraries that torch uses do not survive a fork
    own = server_environment()
    return all(environment.get(name) == own.get(name) for name in READ_AT_START)


def server_environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@functools.cache
def folder_of_server() -> Path:
    """The folder of this process's server, with its socket and a script for each of `COMMANDS`."""
    # No TemporaryDirectory: a fork of multiprocessing forgets exit handlers, and would remove it
    folder = Path(tempfile.mkdtemp(prefix="preloaded-"))
    place = folder / "socket"
    for name in (*COMMANDS, PYTHON):
        script = folder / name
        client = f"{preloaded_client.__file__!r} {str(place)!r} {name!r}"
        call = f'exec {sys.executable!r} -I -S {client} "$@"'
        if name == PYTHON:
            call = f'case "$*" in {OF_TORCH}) {call} ;; *) exec {sys.executable!r} "$@" ;; esac'
        script.write_text(f"#!/bin/sh\n{call}\n")
        script.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.preloaded", str(place)],
        cwd=ROOT,
        env=server_environment(),
        stdin=subprocess.PIPE,
    )

    def stop() -> None:
        server.communicate(b"end")  # forked processes would hide that its input is closed
        shutil.rmtree(folder)

    atexit.register(stop)
    deadline = time.monotonic() + STARTUP
    while not place.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the server of preloaded commands did not start")
        time.sleep(PAUSE)
    return folder


def path(behind: str) -> str:
    """A PATH for shell scripts: `COMMANDS` that ask the server, followed by `behind`."""
    return f"{folder_of_server()}:{behind}" if is_possible(server_environment()) else behind


def run(
    name: str, arguments: Sequence[str], environment: Mapping[str, str], **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run one of `COMMANDS` in the server; `options` are those of ``subprocess.run``."""
    command = [folder_of_server() / name, *arguments]
    return subprocess.run(command, env=dict(environment), **options)


# --- the server -----------------------------------------------------------------


def serve(place: str) -> None:
    """Run commands for every client that connects, until standard input ends."""
    logging_calls = _preload()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}.new")
        listener.listen(64)
        os.rename(f"{place}.new", place)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            with contextlib.suppress(ChildProcessError):  # reap the ended ones
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if sys.stdin in ready:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _end_with(functools.partial(_supervise, connection, logging_calls))
            connection.close()


def _preload() -> list[dict[str, Any]]:
    """Import fairseq, and return the calls with which it would have set up logging."""
    calls: list[dict[str, Any]] = []
    with mock.patch("logging.basicConfig", lambda **options: calls.append(options)):
        import torch._dynamo  # noqa: F401  (the first optimiser would import it)
        from fairseq import options
        from fairseq.dataclass import utils

        keep_what_is_parsed()
        # Done once here, because the first time takes twice as long
        parser, words = options.get_training_parser(), ["data", "--arch=transformer"]
        args = options.parse_args_and_arch(parser, words)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings here would not appear again
            utils.convert_namespace_to_omegaconf(args)
    return calls


def keep_what_is_parsed() -> None:
    """Let hydra parse each of fairseq's settings once, and not copy a store that it only reads."""
    from hydra._internal import config_repository
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parse, kept = OverridesParser.parse_rule, {}

    def parse_once(self: Any, *words: str) -> Any:
        if words not in kept:
            kept[words] = parse(self, *words)
        return copy.copy(kept[words])

    OverridesParser.parse_rule = parse_once
    config_repository.copy = SimpleNamespace(deepcopy=copy.copy)


class _SetUpLogging:
    """Sets up logging where fairseq would: when the first module that needs it is imported."""

    def __init__(self, calls: list[dict[str, Any]]) -> None:
        self.calls = calls

    def find_spec(self, name: str = "fairseq_entmax.compat", *_: object) -> None:
        if name == "fairseq_entmax.compat":
            for call in self.calls:
                logging.basicConfig(**call)


def _supervise(connection: socket.socket, logging_calls: list[dict[str, Any]]) -> int:
    """Fork a command and send its exit status; kill the command if the client disappears."""
    message, files, _, _ = socket.recv_fds(connection, LARGEST, 3)
    size, _, content = message.partition(b"\n")
    while len(content) < int(size):
        content += connection.recv(LARGEST)
    request = json.loads(content)
    command = os.fork()
    if command == 0:
        connection.close()
        _end_with(functools.partial(_command, request, files, logging_calls))
    for file in files:
        os.close(file)
    while True:
        ended, status = os.waitpid(command, os.WNOHANG)
        if ended:
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            return 0
        gone, _, _ = select.select([connection], [], [], PAUSE)
        if gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(command, signal.SIGKILL)


def _command(request: dict[str, Any], files: list[int], logging_calls: list[dict[str, Any]]) -> int:
    """Run the command in this process: take over files, folder, environment and arguments."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    script = Path(sys.executable).parent / request["name"]
    sys.argv = [str(script), *request["arguments"]]
    sys.path[0] = str(script.parent)
    set_up_logging = _SetUpLogging(logging_calls)
    sys.meta_path.insert(0, set_up_logging)  # type: ignore[arg-type]
    try:
        if request["name"] == PYTHON:
            sys.argv = request["arguments"]
            own = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
            sys.path[:1] = [str(Path(sys.argv[0]).parent), *filter(None, own)]
            runpy.run_path(sys.argv[0], run_name="__main__")
            return 0
        (entry,) = importlib.metadata.entry_points(group="console_scripts", name=request["name"])
        main = entry.load()
        if entry.module.startswith("fairseq_cli."):  # these modules import fairseq
            set_up_logging.find_spec()
        sys.exit(main())
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    finally:
        atexit._run_exitfuncs()


def _end_with(work: Callable[[], int]) -> None:
    """End this process with the status that `work` returns, as the interpreter would."""
    status = 1
    try:
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xFF)


if __name__ == "__main__":
    serve(sys.argv[1])
