"""Which kernel runs on a CPU, how the library is compiled and cached, and what runs without it."""

import logging
import os
import shlex
import subprocess
import sys

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.kernels import torch_structured
from fairseq_entmax.kernels.native import library, rows
from fairseq_entmax.mappings import entmax
from tests.kernels.native.support import can_build, needs_compiler

pytestmark = needs_compiler

REAL_COMPILER = shlex.join(library._compiler()) if can_build() else ""
# Loads the library in the given number of processes and prints the exit status of each
AT_ONCE = """
import os, sys, torch
from fairseq_entmax.kernels.native import rows
children = []
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if not child:
        right = rows.probabilities(torch.zeros(1, 4), '', 0.5).tolist() == [[0.25] * 4]
        os._exit(0 if right and "triton" not in sys.modules else 1)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
"""


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """The state of a new process, with an empty cache and a quick compiler that logs its runs."""
    monkeypatch.setattr(kernels, "_logged", set())
    kernels._usable.cache_clear()
    library._try_to_load.cache_clear()
    compiler = tmp_path / "cc"
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] || echo run >> "{tmp_path}/log"\n'
        f'exec {REAL_COMPILER} "$@" -O0\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv(library.VARIABLE, str(tmp_path / "cache"))
    yield monkeypatch
    kernels._usable.cache_clear()
    library._try_to_load.cache_clear()


def runs(tmp_path):
    log = tmp_path / "log"
    return len(log.read_text().split()) if log.exists() else 0


def test_the_environment_variable_selects_a_backend(monkeypatch):
    scores = torch.zeros(3, 4)
    choices = {"torch": torch_structured, "native": rows, "auto": rows, "": rows}
    for name, expected in choices.items():
        monkeypatch.setenv(kernels.VARIABLE, name)
        assert kernels.backend_for(scores, 0.5) is expected
        assert kernels.backend_for(scores, 0.0) is torch_structured  # torch computes softmax
    for other in (scores.half(), scores.double()):
        assert kernels.backend_for(other, 0.5) is torch_structured
    assert kernels.backend_for(scores, 0.0, "tv") is rows
    monkeypatch.setenv(kernels.VARIABLE, "cuda")
    with pytest.raises(ValueError, match="one of auto, torch, native, triton, not 'cuda'"):
        entmax(torch.zeros(3), 1.5)


def test_the_library_is_compiled_once_into_a_private_folder_and_logged(fresh, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            for _ in range(2):
                entmax(torch.randn(2, 5), 1.5)
            library._try_to_load.cache_clear()
    (line,) = [r.getMessage() for r in caplog.records if "alpha-entmax runs" in r.getMessage()]
    assert "native kernel" in line
    assert runs(tmp_path) == 1
    cache = tmp_path / "cache"
    assert cache.stat().st_mode & 0o777 == 0o700
    names = sorted(path.name for path in cache.iterdir())
    assert names[0] == ".lock"
    assert len(names) == 2


@pytest.mark.slow
def test_concurrent_processes_compile_once_and_do_not_import_triton(fresh, tmp_path):
    command = [sys.executable, "-c", AT_ONCE, "6"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.splitlines() == [str([0] * 6)]
    assert runs(tmp_path) == 1


def test_a_damaged_library_is_rebuilt_and_other_options_give_another_library(fresh, tmp_path):
    path = library.cache_folder() / f"entmax-{library._key(library._compiler())}.so"
    path.write_bytes(b"no library")
    assert library.library()._name == str(path)
    assert runs(tmp_path) == 1
    assert path.stat().st_size > 10_000
    key = library._key(library._compiler())
    assert library._key([*library._compiler(), "-O1"]) != key
    fresh.setattr(library, "FLAGS", ("-O1",))
    assert library._key(library._compiler()) != key


def test_a_folder_that_others_can_write_to_or_nobody_is_not_used(fresh, tmp_path, caplog):
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    for folder, cause in ((cache, "others can write to"), ("/dev/null/cache", "[Errno")):
        fresh.setenv(library.VARIABLE, str(folder))
        library._try_to_load.cache_clear()
        kernels._usable.cache_clear()
        assert entmax(torch.zeros(4), 1.5).tolist() == [0.25] * 4
        assert f"for this process alone ({cause}" in caplog.text
    assert runs(tmp_path) == 2
    assert list(cache.iterdir()) == []


def test_a_library_in_a_folder_that_is_read_only_is_loaded(fresh, tmp_path):
    path = library.library()._name
    (tmp_path / "cache" / ".lock").unlink()
    (tmp_path / "cache" / ".lock").mkdir()  # cannot be opened for writing, even by root
    library._try_to_load.cache_clear()
    assert library.library()._name == path
    assert runs(tmp_path) == 1


def test_without_a_compiler_torch_is_used_and_the_log_says_why(fresh, caplog, tmp_path):
    fresh.setenv("PATH", str(tmp_path / "none"))
    fresh.delenv("CC")
    with caplog.at_level(logging.INFO):
        probs = entmax(torch.tensor([1.0, 0.5, -3.0]), 1.5)
    assert probs.sum().item() == pytest.approx(1)
    (line,) = [r.getMessage() for r in caplog.records if "alpha-entmax runs" in r.getMessage()]
    assert "install gcc or clang, or set CC to one" in line
    fresh.setenv(kernels.VARIABLE, kernels.NATIVE)
    with pytest.raises(RuntimeError, match="FAIRSEQ_ENTMAX_KERNEL=native: there is no C compiler"):
        entmax(torch.zeros(3), 1.5)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("CC", "/nowhere/cc", "cannot be run"),
        ("CC", "false", "the compiler false failed: no message"),
        ("CC", "gcc '-O2", "No closing quotation: set FAIRSEQ_ENTMAX_CACHE to .*, or CC"),
    ],
)
def test_a_failed_compilation_names_its_cause(fresh, variable, value, message):
    fresh.setenv(variable, value)
    with pytest.raises(library.CannotBuild, match=message):
        library.library()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.slow
def test_a_forked_child_of_a_threaded_process_gives_the_same_results():
    command = [sys.executable, "-m", "tests.kernels.native.forks"]
    # A child that hangs would never end
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    parent, *children = result.stdout.splitlines()
    assert len(children) == 2
    assert set(children) == {parent}
