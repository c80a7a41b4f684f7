"""The C code under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer.

A program in C calls every function of the library (``sanitized*.c``), so that Python, torch and libgomp,
which were built without a sanitizer, have no part in it. Without AVX-512, whose loads and stores of parts
of vectors sanitizers do not see; what these touch is checked by pages behind each array.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fairseq_entmax.kernels.native import library
from tests.kernels.native.support import needs_compiler

pytestmark = [needs_compiler, pytest.mark.slow]

DRIVER = Path(__file__).with_name("sanitized.c")
SECONDS = 300
# -O0: compiled in a second, and everything that the source says is done
FLAGS = (*("-O0", "-g", "-fopenmp", f"-I{library.FOLDER}"), *library.FLAGS[1:-2])
NO_RECOVERY = "-fno-sanitize-recover=all"
BUILDS = {
    "address": ("-fsanitize=address,undefined", NO_RECOVERY, "-DLANES=8", "-march=native"),
    "thread": ("-fsanitize=thread", "-DLANES=4"),
    "guarded": ("-fsanitize=undefined", NO_RECOVERY, "-DGUARDED", "-march=native"),
}
# What is done wrong on purpose, and which build has to say or do what
PLANTED = [
    ("address", "overrun", "heap-buffer-overflow"),
    ("address", "own-overrun", "heap-buffer-overflow"),
    ("address", "leak", "detected memory leaks"),
    ("address", "overflow", "shift exponent"),
    ("thread", "race", "data race"),
    ("guarded", "overrun", ""),
    ("guarded", "own-overrun", ""),
]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, timeout=SECONDS
    )


def gcc() -> str:
    """GCC: of its OpenMP team.c has what the sanitizers do not know."""
    for command in ("cc", "gcc"):
        path = shutil.which(command)
        if path and "clang" not in run(path, "--version").stdout:
            return path
    pytest.skip("there is no GCC here")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds each program once; the words that run it."""
    folder, programs = tmp_path_factory.mktemp("sanitized"), {}

    def program(name: str) -> list[str | Path]:
        if name not in programs:
            programs[name] = build(name, folder)
        return programs[name]

    return program


def build(name: str, folder: Path) -> list[str | Path]:
    command, flags, path = gcc(), BUILDS[name], folder / name
    sanitizer = flags[0]
    empty = folder / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    made = run(command, sanitizer, empty, "-o", folder / "empty")
    if made.returncode:
        pytest.skip(f"the compiler has no {sanitizer}: {made.stderr[:200]}")
    runs: list[str | Path] = []
    if run(folder / "empty").returncode:  # where addresses are drawn from too wide a range for it
        runs = ["setarch", "-R"]
        if shutil.which("setarch") is None or run(*runs, folder / "empty").returncode:
            pytest.skip(f"programs with {sanitizer} do not run on this system")
    # Linked apart, without -fopenmp: team.c is in libgomp's place
    made = run(command, *FLAGS, *flags, "-Wall", "-c", DRIVER, "-o", f"{path}.o")
    assert made.returncode == 0, made.stderr
    assert "warning" not in made.stderr
    made = run(command, sanitizer, f"{path}.o", "-o", path, "-lm", "-lpthread")
    assert made.returncode == 0, made.stderr
    return [*runs, path]


@pytest.mark.parametrize("name", BUILDS)
def test_nothing_is_found_in_any_function_of_the_library(name, built):
    result = run(*built(name))
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stderr == ""
    checks, word = result.stdout.split()
    assert word == "checks"
    assert int(checks) > 100_000


@pytest.mark.parametrize(("name", "wrong", "message"), PLANTED)
def test_what_is_done_wrong_on_purpose_is_found(name, wrong, message, built):
    result = run(*built(name), wrong)
    assert result.returncode != 0
    assert message in result.stderr


def test_every_function_of_the_library_is_called():
    declared = {
        line.split("(")[0].split()[-1]
        for line in (library.FOLDER / "kernels.c").read_text().splitlines()
        if line.startswith("int entmax_")
    }
    assert len(declared) > 7
    text = "".join(path.read_text() for path in DRIVER.parent.glob("sanitized*.c"))
    assert {name for name in declared if f"{name}(" not in text} <= {"entmax_lanes"}
