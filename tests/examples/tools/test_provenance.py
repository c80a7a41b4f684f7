"""examples/tools/provenance.py: by which code something was made."""

from __future__ import annotations

import subprocess
from pathlib import Path

from provenance import commit, digest_of, is_changed, package_digest

import fairseq_entmax


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", f"{folder}", *who, *arguments], check=True, capture_output=True)


def checkout(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.py").write_text("one = 1\n")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder


def test_the_digest_changes_with_sources_of_python_and_c_alone(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text("one")
    seen = [digest_of(tmp_path)]
    (tmp_path / "sub" / "a.pyc").write_text("compiled")
    assert digest_of(tmp_path) == seen[0]
    for name, text in (("sub/a.py", "two"), ("b.cpp", "one"), ("b.cpp", "two")):
        (tmp_path / name).write_text(text)
        seen.append(digest_of(tmp_path))
    assert len(set(seen)) == len(seen)


def test_the_digest_is_of_the_package_that_is_imported() -> None:
    assert package_digest() == digest_of(Path(fairseq_entmax.__file__).parent)


def test_a_change_of_code_is_one_and_other_files_are_none(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "project")
    assert len(commit(folder) or "") == 40
    (folder / "record.json").write_text("{}")
    assert is_changed(folder) is False
    (folder / "a.py").write_text("one = 2\n")
    assert is_changed(folder) is True


def test_code_that_git_does_not_know_yet_is_a_change(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "project")
    (folder / "new.sh").write_text("true\n")
    assert is_changed(folder) is True


def test_a_folder_that_is_no_checkout_has_no_commit(tmp_path: Path) -> None:
    assert commit(tmp_path) is None
    assert is_changed(tmp_path) is None
