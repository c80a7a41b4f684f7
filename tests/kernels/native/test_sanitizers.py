"""The C code under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer.

A C program (``sanitized*.c``) calls every function of the library, so that Python, torch and
libgomp, which were built without sanitizers, take no part. Their builds leave out AVX-512, whose
masked loads and stores sanitizers do not see; guard pages behind each array check what these touch.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from fairseq_entmax.kernels.native import library
from tests.kernels.native.support import needs_compiler

pytestmark = [needs_compiler, pytest.mark.slow]

DRIVER = Path(__file__).with_name("sanitized.c")
SECONDS = 300
# -O0 compiles in a second, and removes nothing that the source does
FLAGS = (*("-O0", "-g", "-fopenmp", f"-I{library.FOLDER}"), *library.FLAGS[1:-2])
NO_RECOVERY = "-fno-sanitize-recover=all"
BUILDS = {
    "address": ("-fsanitize=address,undefined", NO_RECOVERY, "-DLANES=8", "-march=native"),
    "thread": ("-fsanitize=thread", "-DLANES=4"),
    "guarded": ("-fsanitize=undefined", NO_RECOVERY, "-DGUARDED", "-march=native"),
}
# Deliberate faults: the build that has to find each, and a part of its message
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
    """The path of GCC: team.c replaces its OpenMP team, which the sanitizers do not understand."""
    for command in ("cc", "gcc"):
        path = shutil.which(command)
        if path and "clang" not in run(path, "--version").stdout:
            return path
    pytest.skip("there is no GCC here")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A function that builds each program once and returns the command that runs it."""
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
    if run(folder / "empty").returncode:  # the system randomises addresses too widely for it
        runs = ["setarch", "-R"]
        if shutil.which("setarch") is None or run(*runs, folder / "empty").returncode:
            pytest.skip(f"programs with {sanitizer} do not run on this system")
    # Linked separately, without -fopenmp, so that team.c replaces libgomp
    made = run(command, *FLAGS, *flags, "-Wall", "-c", DRIVER, "-o", f"{path}.o")
    assert made.returncode == 0, made.stderr
    assert "warning" not in made.stderr
    made = run(command, sanitizer, f"{path}.o", "-o", path, "-lm", "-lpthread")
    assert made.returncode == 0, made.stderr
    return [*runs, path]


@pytest.mark.parametrize("name", BUILDS)
def test_sanitizers_find_nothing_in_the_library(name, built):
    result = run(*built(name))
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stderr == ""
    checks, word = result.stdout.split()
    assert word == "checks"
    assert int(checks) > 100_000


@pytest.mark.parametrize(("name", "wrong", "message"), PLANTED)
def test_deliberate_faults_are_found(name, wrong, message, built):
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
