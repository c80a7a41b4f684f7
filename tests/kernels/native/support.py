"""Whether the native kernels can be had on this machine, and compilers that tests set in place."""

import shlex
from pathlib import Path

import pytest

from fairseq_entmax.kernels.native import compiler, library


def can_build() -> bool:
    """Whether there is a C compiler that makes the library."""
    try:
        library.load()
    except library.CannotBuild:
        return False
    return True


needs_compiler = pytest.mark.skipif(not can_build(), reason="no C compiler makes the library here")


# As a shell takes it, and as it was before any test names another in CC
REAL_COMPILER = shlex.join(compiler._command()) if can_build() else ""


class FakeCompiler:
    """A script in the compiler's place, which logs what it compiles and then does as it is told.

    Args:
        path: where it is written.
        then: lines of shell; ``"$@"`` are the arguments, ``$out`` the file to be made.
    """

    def __init__(self, path: Path, then: str = "") -> None:
        self.path, self._log = path, path.with_suffix(".log")
        then = then or f'exec {REAL_COMPILER} "$@" -O0'
        path.write_text(
            '#!/bin/sh\nif [ "$1" = --version ]; then echo fake; exit; fi\n'
            f'echo $$ >> "{self._log}"\nfor word; do [ "$last" = -o ] && out=$word; last=$word; done\n'
            f"{then}\n",
            encoding="utf-8",
        )
        path.chmod(0o755)

    @property
    def processes(self) -> list[int]:
        """A number for each time that it compiled: that of its process."""
        if not self._log.exists():
            return []
        return [int(line) for line in self._log.read_text(encoding="utf-8").split()]

    @property
    def runs(self) -> int:
        """How many times it compiled."""
        return len(self.processes)
