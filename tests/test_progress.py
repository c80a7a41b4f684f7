"""Progress messages of long work, on standard error."""

import pytest

from fairseq_entmax import progress


def test_items_pass_through_and_short_work_prints_nothing(capsys):
    assert list(progress.watched(range(5), "work", unit="items")) == [0, 1, 2, 3, 4]
    with progress.message_if_long("a file is read"):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("is_shown", [True, False])
def test_long_work_shows_its_progress_if_enabled(is_shown, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SHORT", 0)
    monkeypatch.setattr(progress, "RAREST", 0)
    with progress.watched(None, "work", 4, is_shown, "items") as shown:
        shown.update(2)
        shown.update(1)
    output = capsys.readouterr().err
    assert ("work: 3 of 4 items, less than a minute left\n" in output) == is_shown


def test_a_duration_is_in_minutes():
    expected = {29: "less than a minute", 31: "1 min", 3600: "1 h 0 min"}
    assert {seconds: progress.duration(seconds) for seconds in expected} == expected
