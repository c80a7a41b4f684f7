"""Which kernel runs on a CPU, and how the library is compiled, kept, and done without."""

import logging
import os
import subprocess
import sys

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.kernels import torch_ops
from fairseq_entmax.kernels.native import folders, library, rows
from fairseq_entmax.kernels.native.compiler import MORE_FLAGS
from fairseq_entmax.mappings import entmax
from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler


def test_the_switch_forces_a_backend(fresh):
    scores = torch.zeros(3, 4)
    for name, expected in (("torch", torch_ops), ("native", rows), ("auto", rows), ("", rows)):
        fresh.setenv(kernels.VARIABLE, name)
        assert kernels.backend_for(scores, 0.5) is expected
    fresh.delenv(kernels.VARIABLE)
    assert kernels.backend_for(scores, 0.5) is rows
    assert kernels.backend_for(scores.half(), 0.5) is torch_ops


def test_an_unknown_name_is_refused_with_those_that_are_allowed(fresh):
    fresh.setenv(kernels.VARIABLE, "cuda")
    with pytest.raises(
        ValueError,
        match="FAIRSEQ_ENTMAX_KERNEL must be one of auto, torch, native, triton, not 'cuda'",
    ):
        entmax(torch.zeros(3), 1.5)


def test_one_line_of_the_log_says_what_runs(fresh, caplog):
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            entmax(torch.randn(2, 5), 1.5)
    (line,) = [r.getMessage() for r in caplog.records if "alpha-entmax runs" in r.getMessage()]
    assert "native kernel" in line


def test_without_a_compiler_torch_runs_and_the_log_says_why(fresh, caplog, tmp_path):
    fresh.setenv("PATH", str(tmp_path))
    fresh.delenv("CC", raising=False)
    fresh.setenv("FAIRSEQ_ENTMAX_CACHE", str(tmp_path / "cache"))
    with caplog.at_level(logging.INFO):
        probs = entmax(torch.tensor([1.0, 0.5, -3.0]), 1.5)
    assert probs.sum().item() == pytest.approx(1)
    (line,) = [r.getMessage() for r in caplog.records if "alpha-entmax runs" in r.getMessage()]
    assert "install gcc or clang, or name one in CC" in line
    fresh.setenv(kernels.VARIABLE, kernels.NATIVE)
    with pytest.raises(RuntimeError, match="FAIRSEQ_ENTMAX_KERNEL=native: there is no C compiler"):
        entmax(torch.zeros(3), 1.5)


@pytest.mark.parametrize(
    ("compiler", "message"),
    [("/nowhere/cc", "cannot be run"), ("false", "the compiler false failed: no message")],
)
def test_a_compiler_that_fails_is_named(fresh, tmp_path, compiler, message):
    fresh.setenv("CC", compiler)
    fresh.setenv("FAIRSEQ_ENTMAX_CACHE", str(tmp_path))
    with pytest.raises(library.CannotBuild, match=message):
        library.load()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compiler", ["gcc '-O2", 'gcc "-O2', "gcc \\"])
def test_an_unbalanced_quote_in_cc_is_said_to_be_in_cc(fresh, tmp_path, compiler):
    fresh.setenv("CC", compiler)
    fresh.setenv("FAIRSEQ_ENTMAX_CACHE", str(tmp_path))
    with pytest.raises(library.CannotBuild) as refusal:
        library.load()
    assert str(refusal.value).startswith(f"CC got {compiler!r}, which a shell could not read (no ")
    assert "such as CC='gcc -O2'" in str(refusal.value)


def test_a_cache_that_cannot_be_written_is_named_with_the_remedy(fresh, tmp_path):
    (tmp_path / "file").touch()
    fresh.setenv("FAIRSEQ_ENTMAX_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(library.CannotBuild, match="name another in FAIRSEQ_ENTMAX_CACHE"):
        library.load()


def test_what_cannot_be_built_is_not_tried_at_every_call(fresh, tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] || echo tried >> "{tmp_path}/log"\nexit 1\n'
    )
    compiler.chmod(0o755)
    fresh.setenv("CC", str(compiler))
    fresh.setenv("FAIRSEQ_ENTMAX_CACHE", str(tmp_path / "cache"))
    for _ in range(3):
        assert kernels.backend_for(torch.zeros(3), 0.5) is torch_ops
    tried = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert len(tried) == len(MORE_FLAGS)


def test_the_cache_may_be_named_by_a_relative_path(fresh, tmp_path):
    fresh.chdir(tmp_path)
    fresh.setenv("FAIRSEQ_ENTMAX_CACHE", ".")
    assert library.load().parent == tmp_path
    assert kernels.backend_for(torch.zeros(3), 0.5) is rows


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("CC", 'gcc "', "name a compiler in it, such as CC='gcc -O2'"),
        (
            *("FAIRSEQ_ENTMAX_CACHE", "~nobody-of-that-name/x"),
            "FAIRSEQ_ENTMAX_CACHE names another folder, CC a compiler",
        ),
    ],
)
def test_settings_that_cannot_be_read_leave_the_work_to_torch(
    fresh, caplog, variable, value, remedy
):
    fresh.setenv(variable, value)
    with caplog.at_level(logging.INFO):
        assert kernels.backend_for(torch.zeros(3), 0.5) is torch_ops
    assert remedy in caplog.text


def test_without_a_home_folder_the_message_names_the_remedy(fresh):
    for name in ("HOME", "XDG_CACHE_HOME", "FAIRSEQ_ENTMAX_CACHE"):
        fresh.delenv(name, raising=False)

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    fresh.setattr(folders.Path, "home", no_home)
    with pytest.raises(library.CannotBuild, match="name a folder in FAIRSEQ_ENTMAX_CACHE"):
        library.load()


def test_it_is_compiled_once_and_two_processes_do_not_disturb_each_other(tmp_path):
    code = (
        "import torch; from fairseq_entmax.kernels.native import library, rows; "
        "print(library.load()); print(float(rows.probabilities(torch.zeros(1, 4), 0.5)[0, 0]))"
    )
    environment = {**os.environ, "FAIRSEQ_ENTMAX_CACHE": str(tmp_path)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = {process.communicate(timeout=300)[0] for process in started}
    (library,) = tmp_path.iterdir()
    assert outputs == {f"{library}\n0.25\n"}
    made = library.stat().st_mtime_ns
    again = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert again.stdout == f"{library}\n0.25\n"
    assert library.stat().st_mtime_ns == made
