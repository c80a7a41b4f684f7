"""Checkpoints that were cut short by a kill."""

import zipfile

from checkpoints import DAMAGED, main, mend, newest

BEST, LAST = "checkpoint_best.pt", "checkpoint_last.pt"


def write(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", content * 1000)
    return path.read_bytes()


def test_the_newest_checkpoint_is_found_by_its_updates_and_must_be_whole(tmp_path):
    for name in ("checkpoint_2_900.pt", "checkpoint_10_1000.pt", "checkpoint_1_99.pt"):
        write(tmp_path / name, name)
    assert newest(tmp_path).name == "checkpoint_10_1000.pt"
    (tmp_path / "checkpoint_1_1001.pt").write_bytes(b"PK")
    assert newest(tmp_path) is None
    assert newest(tmp_path / "not-there") is None


def test_both_copies_are_restored_from_the_newest_checkpoint(tmp_path):
    whole = write(tmp_path / "checkpoint_1_50.pt", "a")
    for name in (BEST, LAST):
        (tmp_path / name).write_bytes(b"cut short")
    assert mend(tmp_path)
    assert (tmp_path / BEST).read_bytes() == (tmp_path / LAST).read_bytes() == whole


def test_a_missing_or_truncated_last_checkpoint_is_copied_from_the_best(tmp_path):
    assert mend(tmp_path / "not-there-yet")
    whole = write(tmp_path / BEST, "best")
    (tmp_path / f"{LAST}.tmp").write_bytes(b"left by a kill")
    for content in (None, b"", whole[: len(whole) // 2], whole[:-1]):
        (tmp_path / LAST).unlink(missing_ok=True)
        if content is not None:
            (tmp_path / LAST).write_bytes(content)
        assert mend(tmp_path)
        assert (tmp_path / LAST).read_bytes() == whole
    assert {path.name for path in tmp_path.iterdir()} == {BEST, LAST}


def test_damage_and_a_failed_copy_have_different_exit_statuses(tmp_path, monkeypatch, stopped):
    def full(*_):
        raise OSError(28, "No space left on device", "here")

    whole = bytearray(write(tmp_path / BEST, "a"))
    monkeypatch.setattr("checkpoints.shutil.copyfile", full)
    status, error = stopped(main, ["mend", str(tmp_path)])
    assert (status, "No space left on device" in error) == (1, True)
    whole[len(whole) // 2] ^= 1
    (tmp_path / BEST).write_bytes(whole)
    assert stopped(main, ["mend", str(tmp_path)])[0] == DAMAGED
