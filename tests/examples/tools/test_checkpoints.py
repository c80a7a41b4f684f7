"""Checkpoints that a kill left cut short; tests/examples/test_recipe_shell.py has the usual ways."""

import zipfile

import pytest
from checkpoints import CANNOT_WRITE, main, mend, newest


def write(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", content * 1000)


def test_the_newest_checkpoint_is_told_by_its_updates_not_its_name(tmp_path):
    for name in ("checkpoint_2_900.pt", "checkpoint_10_1000.pt", "checkpoint_1_99.pt"):
        write(tmp_path / name, name)
    assert newest(tmp_path).name == "checkpoint_10_1000.pt"


def test_a_newest_checkpoint_that_is_cut_short_is_none(tmp_path):
    write(tmp_path / "checkpoint_1_50.pt", "a")
    (tmp_path / "checkpoint_1_60.pt").write_bytes(b"PK")
    assert newest(tmp_path) is None
    assert newest(tmp_path / "not-there") is None


def test_where_a_run_saves_by_updates_both_copies_are_mended_from_the_newest(tmp_path):
    write(tmp_path / "checkpoint_1_50.pt", "a")
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        (tmp_path / name).write_bytes(b"cut short")
    assert mend(tmp_path)
    newest_bytes = (tmp_path / "checkpoint_1_50.pt").read_bytes()
    assert (tmp_path / "checkpoint_best.pt").read_bytes() == newest_bytes
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == newest_bytes


def test_a_copy_that_cannot_be_written_is_told_from_a_damaged_run(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    write(tmp_path / "checkpoint_best.pt", "a")
    monkeypatch.setattr("checkpoints.shutil.copyfile", full)
    with pytest.raises(SystemExit) as end:
        main(["mend", str(tmp_path)])
    assert end.value.code == CANNOT_WRITE
    assert "checkpoint_last.pt: No space left on device" in capsys.readouterr().err
