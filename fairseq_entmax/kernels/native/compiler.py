"""The C compiler of the machine: which one it is, and how it makes the library."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

SOURCES = tuple(
    Path(__file__).parent / name
    for name in (
        *("kernels.c", "vectors.h", "block.h", "sieve.h", "rows_f32.h", "rows_f64.h", "losses.h"),
        *("prox_tv.h", "prox.h", "pnorm.h", "structured.h", "rows_structured.h", "attention.h"),
        *("attention_short.h", "attention_rows.h", "attention_dense.h", "dropout.h", "decoding.h"),
    )
)
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    *("-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math"),
    *("-fwrapv", "-shared", "-fPIC"),  # exponents of what is masked away may overflow
)
# What is tried in turn: not every compiler has OpenMP, or can compile for its own processor
MORE_FLAGS = (("-march=native", "-fopenmp"), ("-fopenmp",), ("-march=native",), ())
SECONDS_TO_COMPILE = 300


class CannotBuild(RuntimeError):
    """The library cannot be compiled here; says why and what to do."""


def description() -> str:
    """All that the library depends on besides its source: compiler, flags, system, processor.

    Raises:
        CannotBuild: there is no compiler.
    """
    system = (*platform.libc_ver(), _processor())
    return repr((_command(), _version(), FLAGS, MORE_FLAGS, system))


def compile_library(folder: Path, why_unusable: Callable[[Path], str]) -> Path:
    """Compile the library with the first flags that give one that can be used.

    Args:
        folder: where it is made; what the compiler leaves behind stays in it too.
        why_unusable: what is wrong with a library; empty where nothing is.

    Returns:
        The library, in ``folder``.

    Raises:
        CannotBuild: there is no compiler, it cannot be run, or no flags give a usable library.
    """
    command = _command()
    first_failure = ""
    for attempt, more in enumerate(MORE_FLAGS):
        # Each has a name of its own: a loader gives what it has loaded under a name again
        library = folder / f"{attempt}.so"
        arguments = [*FLAGS, *more, str(SOURCES[0]), "-o", str(library), "-lm"]
        try:
            result = subprocess.run(
                [*command, *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=SECONDS_TO_COMPILE,
                # So that nothing of a compiler that is killed stays in the system's folder
                env={**os.environ, "TMPDIR": str(folder)},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotBuild(f"the compiler {command[0]} cannot be run: {error}") from error
        failure = result.stderr.strip() or "no message"
        if result.returncode == 0 and library.exists():
            failure = why_unusable(library)
            if not failure:
                return library
        first_failure = first_failure or failure.splitlines()[0]
    raise CannotBuild(f"the compiler {' '.join(command)} failed: {first_failure}")


def _command() -> list[str]:
    """The command of the compiler.

    Raises:
        CannotBuild: there is none, or ``CC`` cannot be read.
    """
    named = os.environ.get("CC", "")
    try:
        command = shlex.split(named)
    except ValueError as error:
        raise CannotBuild(
            f"CC got {named!r}, which a shell could not read ({str(error).lower()}): name a compiler "
            f"in it, such as CC='gcc -O2'"
        ) from None
    if command:
        return command
    for name in COMPILERS:
        path = shutil.which(name)
        if path:
            return [path]
    raise CannotBuild("there is no C compiler: install gcc or clang, or name one in CC")


def _version() -> str:
    """What the compiler says that it is; empty if it does not."""
    try:
        command = [*_command(), "--version"]
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout


def _processor() -> str:
    """What instructions the processor has, as far as the system says."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(("flags", "Features")):
                    return f"{platform.machine()} {line}"
    except OSError:
        pass
    return f"{platform.machine()} {platform.processor()}"
