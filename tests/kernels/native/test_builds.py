"""How the library is compiled: once, whole, and with nothing left behind."""

import errno
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_entmax.kernels.native import cache, folders, library, rows
from fairseq_entmax.kernels.native.compiler import MORE_FLAGS
from tests.kernels.native.support import REAL_COMPILER, FakeCompiler, needs_compiler

pytestmark = needs_compiler

# Forks as many processes as it is told, all of which load the library; so each needs no second to
# import torch. Prints how each ended.
LOAD_AT_ONCE = """
import os, sys, torch
from fairseq_entmax.kernels.native import library, rows
children = []
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if not child:
        right = rows.probabilities(torch.zeros(1, 4), 0.5).tolist() == [[0.25] * 4]
        os._exit(0 if right else 1)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
"""
# Forks processes that load the library, one after the other, and kills each in the middle
KILL = """
import os, signal, sys, time
from pathlib import Path
from fairseq_entmax.kernels.native import library
log = Path(sys.argv[1])
for number in range(int(sys.argv[2])):
    child = os.fork()
    if not child:
        library.load()
        os._exit(0)
    while not log.exists() or len(log.read_text().split()) <= number:
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.kill(int(log.read_text().split()[number]), signal.SIGKILL)
    print(os.waitpid(child, 0)[1])
"""


def run(code, *arguments):
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return result.stdout.splitlines()


@pytest.mark.slow
def test_eight_processes_at_once_compile_once(compiler, folder):
    assert run(LOAD_AT_ONCE, 8) == [str([0] * 8)]
    assert compiler.runs == 1
    assert list(folder.iterdir()) == [library.load()]


def test_where_there_are_no_locks_each_process_compiles(compiler, folder, fresh):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fresh.setattr(folders.fcntl, "flock", no_locks)
    other = folder / f"{cache.BUILD}01234567"  # of another process
    other.mkdir()
    path = library.load()
    assert sorted(folder.iterdir()) == sorted([path, other])


def test_who_waits_too_long_for_another_compiles_itself(compiler, folder, fresh):
    fresh.setattr(cache, "SECONDS_TO_COMPILE", 0.2)
    with cache.locked(folder):
        path = library.load()
        assert sorted(file.name for file in folder.iterdir()) == sorted([path.name, cache.LOCK])


@pytest.mark.slow
# What a compiler has written when it is killed: nothing, or something
@pytest.mark.parametrize("before", ["", 'printf half > "$out"; echo "$out" > "$TMPDIR/cc1.s"; '])
def test_six_kills_during_the_build_leave_nothing(before, folder, fresh, tmp_path):
    stuck = FakeCompiler(tmp_path / "stuck", before + "exec sleep 100")
    fresh.setenv("CC", str(stuck.path))
    assert run(KILL, stuck.path.with_suffix(".log"), 6) == [str(int(signal.SIGKILL))] * 6
    assert any(folder.iterdir())
    fresh.setenv("CC", str(FakeCompiler(tmp_path / "cc").path))
    assert rows.probabilities(torch.zeros(1, 4), 0.5).tolist() == [[0.25] * 4]
    assert list(folder.iterdir()) == [library.load()]


@pytest.mark.slow
def test_kills_leave_nothing_among_temporary_files_either(folder, fresh, tmp_path):
    folder.chmod(0o777)
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    fresh.setenv("TMPDIR", str(temporary))
    stuck = FakeCompiler(tmp_path / "stuck", "exec sleep 100")
    fresh.setenv("CC", str(stuck.path))
    run(KILL, stuck.path.with_suffix(".log"), 2)
    assert any(temporary.iterdir())
    fresh.setenv("CC", str(FakeCompiler(tmp_path / "cc").path))
    run("from fairseq_entmax.kernels.native import library; library.load()")
    assert list(temporary.iterdir()) == []


def test_private_folders_of_living_processes_stay(fresh, tmp_path):
    fresh.setattr("tempfile.tempdir", str(tmp_path))
    with folders.private() as first, folders.private() as second:
        assert first.exists()
        assert second.exists()
    assert list(tmp_path.iterdir()) == []


def test_folders_that_others_made_stay(compiler, fresh, folder, tmp_path):
    fresh.setattr("tempfile.tempdir", str(tmp_path))
    mine = [folder / f"{cache.BUILD}notes", tmp_path / f"{folders.PRIVATE}2024-results"]
    for path in mine:
        path.mkdir()
    library.load()
    with folders.private():
        pass
    assert all(path.is_dir() for path in mine)


def without_functions(path: Path) -> FakeCompiler:
    """A compiler that makes a whole library of something else."""
    source = path.with_suffix(".c")
    source.write_text("int something_else(void) { return 1; }\n", encoding="utf-8")
    return FakeCompiler(path, f'exec {REAL_COMPILER} -shared -fPIC "{source}" -o "$out"')


def test_a_library_that_lacks_a_function_is_compiled_anew_once(compiler, folder, tmp_path, caplog):
    path = library.load()
    content = path.read_bytes()
    library._try_to_load.cache_clear()
    other = tmp_path / "other.so"
    subprocess.run([without_functions(tmp_path / "other").path, "-o", str(other)], check=True)
    digest = hashlib.sha256(other.read_bytes()).hexdigest()
    lacking = path.with_name(path.name.replace(hashlib.sha256(content).hexdigest(), digest))
    path.unlink()
    other.chmod(0o700)
    other.rename(lacking)
    assert rows.probabilities(torch.zeros(1, 4), 0.5).tolist() == [[0.25] * 4]
    assert compiler.runs == 2
    assert f"{lacking} lacks a function" in caplog.text
    assert list(folder.iterdir()) == [library.load()]


def test_a_compiler_whose_library_lacks_a_function_is_named(fresh, folder, tmp_path):
    other = without_functions(tmp_path / "cc")
    fresh.setenv("CC", str(other.path))
    with pytest.raises(library.CannotBuild, match=r"the compiler .* failed: .*entmax_forward_f32"):
        library.load()
    assert other.runs == len(MORE_FLAGS)
    assert list(folder.iterdir()) == []
