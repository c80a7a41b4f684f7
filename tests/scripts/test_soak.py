"""scripts/soak.sh kills jobs and reports differences; tested with jobs that take no time."""

import json
import lzma
import sys

import pytest
import torch

from tests.scripts.support import load


@pytest.fixture
def soak(monkeypatch):
    return load("soak", monkeypatch)


def test_killed_jobs_must_end_like_an_uninterrupted_one(soak, tmp_path, monkeypatch, capsys):
    safe = "sleep 0.3; echo whole >new.tmp; mv new.tmp new"
    unsafe = "[ -e begun ] || { touch begun; sleep 0.3; echo whole >new; }"
    monkeypatch.setattr(soak, "KINDS", {"safe": soak.Kind(safe), "unsafe": soak.Kind(unsafe)})
    for kind, status in (("safe", 0), ("unsafe", 1)):
        words = ["soak.sh", "--kills", "3", "--seed", "3", "--kinds", kind]
        monkeypatch.setattr(sys, "argv", [*words, "--output", str(tmp_path / kind)])
        assert soak.main() == status
        output = capsys.readouterr()
        assert f"kills ({kind} " in output.out
        assert ("new is missing" in output.err) == bool(status)
        assert bool(list((tmp_path / kind / "killed").iterdir())) == bool(status)


def test_missing_changed_and_leftover_files_are_reported(soak, tmp_path):
    expected, found = tmp_path / "expected", tmp_path / "found"
    for folder in (expected, found):
        folder.mkdir()
        (folder / "same").write_text(f"in {folder}")
        record = json.dumps({"path": str(folder), "date": len(str(folder))})
        (folder / "record.json.xz").write_bytes(lzma.compress(record.encode()))
        (folder / "other").write_text(folder.name)
        (folder / "train.log").write_text(folder.name)
        resumed = [{"num_updates": 1}] if folder == found else []
        for name, number in (("resumed.pt", 1.0), ("learned.pt", float(len(resumed)))):
            state = {"model": {"w": torch.tensor(number)}}
            history = {"optimizer_history": [*resumed, {"num_updates": 2}]}
            torch.save(state | history, folder / name)
    (expected / "gone").touch()
    (found / "new").touch()
    (found / "marked.tmp12").touch()
    (found / "data-bin.tmp").mkdir()
    assert soak.differences(expected, found) == [
        "gone is missing",
        "new should not exist",
        "learned.pt has different content",
        "other has different content",
        "data-bin.tmp was left over",
        "marked.tmp12 was left over",
    ]
    assert soak.differences(expected, expected) == []
