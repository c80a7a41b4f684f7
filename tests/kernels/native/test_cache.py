"""What the cache of the library loads: nothing that another user can have put there."""

import hashlib
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_entmax.kernels.native import cache, compiler, folders, library, rows
from tests.kernels.native.support import REAL_COMPILER, needs_compiler

pytestmark = needs_compiler
as_root = pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0,
    reason="only root can give a file to another user: run this test as root",
)
NOBODY = 65534


@pytest.fixture(autouse=True)
def _umask():
    """Files that tests make are to be this user's alone, whatever is usual on the machine."""
    old = os.umask(0o022)
    yield
    os.umask(old)


@pytest.fixture(scope="module")
def payload(tmp_path_factory):
    """The whole library, with code that leaves a mark when it is loaded: library and mark."""
    folder = tmp_path_factory.mktemp("payload")
    source, mark, made = folder / "payload.c", folder / "it-ran", folder / "payload.so"
    source.write_text(
        f'#include "{compiler.SOURCES[0]}"\n#include <stdio.h>\n'
        "__attribute__((constructor)) static void leave_a_mark(void)\n"
        f'{{ FILE *mark = fopen("{mark}", "w"); if (mark) fclose(mark); }}\n',
        encoding="utf-8",
    )
    command = shlex.split(f"{REAL_COMPILER} -O0 -std=gnu11 -fwrapv -shared -fPIC")
    subprocess.run([*command, str(source), "-o", str(made), "-lm"], check=True)
    return made, mark


@pytest.fixture
def planted(payload, compiler, folder):
    """The payload in the cache, under the name that its content has there."""
    honest = library.load()
    library._try_to_load.cache_clear()
    content = payload[0].read_bytes()
    digest = hashlib.sha256(honest.read_bytes()).hexdigest()
    path = honest.with_name(honest.name.replace(digest, hashlib.sha256(content).hexdigest()))
    honest.unlink()
    path.write_bytes(content)
    path.chmod(0o700)
    payload[1].unlink(missing_ok=True)
    return path


@pytest.fixture
def it_ran(payload):
    """Whether the payload was loaded while the right result was computed."""

    def run():
        probs = rows.probabilities(torch.tensor([[0.0, 0.0, -torch.inf]]), 0.5)
        assert probs.tolist() == [[0.5, 0.5, 0.0]]
        return payload[1].exists()

    return run


def test_the_payload_would_run_if_it_were_this_users_own(planted, it_ran):
    assert it_ran()


def assert_private(folder, caplog, reason):
    """What is in the folder was left alone, and one warning says why and what to do."""
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert reason in warning.getMessage()
    assert "FAIRSEQ_ENTMAX_CACHE" in warning.getMessage()
    path = library.load()
    assert folder.resolve() not in path.parents
    assert not path.parent.exists()


@pytest.mark.parametrize("mode", [0o702, 0o720, 0o777, 0o1777])
def test_a_folder_that_others_can_write_to_is_left_alone(planted, it_ran, folder, caplog, mode):
    folder.chmod(mode)
    assert not it_ran()
    assert_private(folder, caplog, f"others can write to {folder}: chmod go-w {folder}")
    assert list(folder.iterdir()) == [planted]


@as_root
def test_a_folder_of_another_user_is_left_alone(planted, it_ran, folder, caplog):
    os.chown(folder, NOBODY, -1)
    assert not it_ran()
    assert_private(folder, caplog, f"{folder} belongs to another user (number {NOBODY})")
    assert list(folder.iterdir()) == [planted]


@as_root
def test_nothing_is_written_to_the_home_of_another_user(fresh, compiler, it_ran, tmp_path, caplog):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, -1)
    fresh.delenv("FAIRSEQ_ENTMAX_CACHE", raising=False)
    fresh.delenv("XDG_CACHE_HOME", raising=False)
    fresh.setenv("HOME", str(home))
    it_ran()
    assert_private(home, caplog, f"{home} belongs to another user (number {NOBODY})")
    assert list(home.iterdir()) == []


def test_a_folder_that_others_can_replace_is_left_alone(planted, it_ran, folder, caplog):
    folder.parent.chmod(0o777)
    assert not it_ran()
    assert_private(folder, caplog, f"others can write to {folder.parent}")


def test_others_cannot_replace_a_folder_where_the_sticky_bit_is(planted, it_ran, folder):
    folder.parent.chmod(0o1777)
    assert it_ran()


@as_root
def test_a_folder_inside_that_of_another_user_is_left_alone(planted, it_ran, folder, caplog):
    os.chown(folder.parent, NOBODY, -1)
    assert not it_ran()
    assert_private(folder, caplog, f"{folder.parent} belongs to another user")


@as_root
def test_a_library_of_another_user_is_replaced(planted, it_ran, caplog):
    os.chown(planted, NOBODY, -1)
    assert not it_ran()
    assert f"{planted} belongs to another user" in caplog.text
    assert not planted.exists()


def test_a_library_that_others_can_write_to_is_replaced(planted, it_ran, caplog):
    planted.chmod(0o722)
    assert not it_ran()
    assert f"others can write to {planted}" in caplog.text


def test_a_link_is_not_followed_to_a_library(planted, payload, it_ran, folder, caplog):
    planted.unlink()
    planted.symlink_to(payload[0])
    payload[0].chmod(0o700)
    assert not it_ran()
    assert f"{planted} is a link" in caplog.text
    assert list(folder.iterdir()) == [library.load()]
    assert not library.load().is_symlink()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_not_a_file_is_no_library(planted, it_ran, caplog, make):
    planted.unlink()
    make(planted)
    assert not it_ran()
    assert f"{planted} is not a plain file" in caplog.text


def test_another_content_under_the_same_name_is_replaced(payload, planted, it_ran, caplog):
    name = planted.with_name(re.sub("[0-9a-f]{64}", "0" * 64, planted.name))
    planted.rename(name)
    assert not it_ran()
    assert f"{name} is damaged" in caplog.text
    assert not name.exists()


def test_a_link_of_this_user_to_a_folder_of_its_own_is_followed(planted, it_ran, folder, fresh):
    link = folder.with_name("link")
    link.symlink_to(folder.name)
    fresh.setenv("FAIRSEQ_ENTMAX_CACHE", str(link))
    assert it_ran()
    assert library.load() == planted.resolve()


def test_a_link_to_a_folder_that_others_can_write_to_is_not(
    planted, it_ran, folder, fresh, tmp_path, caplog
):
    folder.chmod(0o777)
    link = tmp_path / "link"
    link.symlink_to(folder)
    fresh.setenv("FAIRSEQ_ENTMAX_CACHE", str(link))
    assert not it_ran()
    assert_private(folder, caplog, f"others can write to {folder}")


def test_a_link_that_others_can_turn_elsewhere_is_not_followed(
    planted, it_ran, folder, fresh, tmp_path, caplog
):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "second").symlink_to(folder)
    link = tmp_path / "first"
    link.symlink_to(shared / "second")
    fresh.setenv("FAIRSEQ_ENTMAX_CACHE", str(link))
    assert not it_ran()
    assert_private(folder, caplog, f"others can write to {shared}")


@as_root
def test_a_link_of_another_user_is_not_followed(planted, it_ran, folder, fresh, tmp_path, caplog):
    link = tmp_path / "link"
    link.symlink_to(folder)
    os.lchown(link, NOBODY, -1)
    fresh.setenv("FAIRSEQ_ENTMAX_CACHE", str(link))
    assert not it_ran()
    assert_private(folder, caplog, f"{link} belongs to another user")


def test_links_in_a_circle_are_an_error(tmp_path):
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="symbolic links"):
        folders.trusted(tmp_path / "one")


def test_the_way_back_from_a_folder_is_that_of_the_system(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    assert folders.trusted(tmp_path / "link" / ".." / "new") == tmp_path.resolve() / "a" / "new"


def test_folders_are_made_for_this_user_alone(tmp_path):
    old = os.umask(0)
    try:
        path = folders.prepare(tmp_path / "new" / "cache")
    finally:
        os.umask(old)
    assert [folder.stat().st_mode & 0o777 for folder in (path, path.parent)] == [0o700] * 2


def test_where_the_system_has_no_users_the_folder_is_taken_as_it_is(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "getuid")
    tmp_path.chmod(0o777)
    assert folders.prepare(tmp_path) == tmp_path


def test_without_a_safe_folder_at_all_nothing_is_compiled(fresh, compiler, folder, tmp_path):
    folder.chmod(0o777)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    fresh.setattr("tempfile.tempdir", str(shared))
    with pytest.raises(library.CannotBuild, match=f"others can write to {shared}: chmod go-w"):
        library.load()
    assert compiler.runs == 0
    assert list(shared.iterdir()) == []


def test_a_relative_cache_home_is_ignored(fresh, compiler, tmp_path):
    fresh.chdir(tmp_path)
    fresh.setenv("HOME", str(tmp_path / "home"))
    fresh.setenv("XDG_CACHE_HOME", "relative")
    fresh.delenv("FAIRSEQ_ENTMAX_CACHE", raising=False)
    assert library.load().parent == tmp_path.resolve() / "home" / ".cache" / "fairseq-entmax"
    assert not (tmp_path / "relative").exists()


def test_an_absolute_cache_home_is_used(fresh, compiler, tmp_path):
    fresh.setenv("XDG_CACHE_HOME", str(tmp_path / "absolute"))
    fresh.delenv("FAIRSEQ_ENTMAX_CACHE", raising=False)
    assert library.load().parent == tmp_path.resolve() / "absolute" / "fairseq-entmax"


def flip(path, bit, content=None):
    """Give the path to a file with one bit changed; what is loaded of the old file stays."""
    changed = bytearray(content or path.read_bytes())
    bit %= 8 * len(changed)
    changed[bit // 8] ^= 1 << bit % 8
    path.unlink()
    path.write_bytes(changed)


def test_every_flipped_bit_is_found(compiler, folder):
    path = library.load()
    content = path.read_bytes()
    os.close(cache.opened(path))
    bits = 8 * len(content)
    sample = random.Random(1).sample(range(bits), 200)
    for bit in (*range(64 * 8), *sample, bits - 1):
        flip(path, bit, content)
        with pytest.raises(folders.UntrustedError, match="is damaged"):
            cache.opened(path)


@pytest.mark.parametrize("share", [0, 0.3, 0.999])
def test_a_library_cut_short_is_compiled_anew(share, compiler, folder, caplog):
    path = library.load()
    whole = path.read_bytes()
    library._try_to_load.cache_clear()
    path.unlink()  # a file that is loaded is not to be changed
    path.write_bytes(whole[: int(share * len(whole))])
    assert rows.probabilities(torch.zeros(1, 4), 0.5).tolist() == [[0.25] * 4]
    assert f"{path} is damaged" in caplog.text
    assert compiler.runs == 2


@pytest.mark.slow
def test_processes_compile_a_damaged_library_anew(compiler, folder):
    """Where a bit was not found, the system would kill the process: it is one of its own."""
    code = """
import sys, torch
from fairseq_entmax.kernels.native import library, rows
from tests.kernels.native.test_cache import flip
path = library.load()
for bit in sys.argv[1:]:
    flip(path, int(bit))
    library._try_to_load.cache_clear()
    path = library.load()
    print(rows.probabilities(torch.zeros(1, 4), 0.5).tolist())
"""
    bits = [4, 8 * 40, 8 * 4096 + 3, *random.Random(2).sample(range(10**6), 2)]
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, bits)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=Path(__file__).parents[3],
    )
    assert result.stdout.splitlines() == ["[[0.25, 0.25, 0.25, 0.25]]"] * len(bits)
    assert compiler.runs == 1 + len(bits)


def test_a_second_library_is_not_taken_for_the_first(compiler, folder):
    """A loader gives what it has loaded under a name again, whatever the name stands for now."""
    path = library.load()
    first = library.library()
    path.unlink()
    library._try_to_load.cache_clear()
    library.load()
    assert library.library()._name != first._name
