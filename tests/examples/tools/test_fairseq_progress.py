"""examples/tools/fairseq_progress.py: the progress, the time left, and the complete log."""

import io
import sys

import fairseq_progress
import pytest

INNER = "2026-01-01 10:00:00 | INFO | train_inner | epoch 001:  {} / 200 loss=7.2, nll_loss=6.4, num_updates={}, lr=0.1\n"
VALID = "2026-01-01 10:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 5.5 | nll_loss 4.25 | num_updates 200\n"
WARNING = "2026-01-01 10:00:00 | WARNING | fairseq.x | look at this\n"


@pytest.fixture
def shown(tmp_path, monkeypatch, capsys):
    def of(lines, unit="epochs", length="2", seconds=30.0):
        clock = iter(number * seconds for number in range(100))
        monkeypatch.setattr(fairseq_progress.time, "monotonic", lambda: next(clock))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(lines).encode())))
        log = tmp_path / "train.log"
        log.unlink(missing_ok=True)
        fairseq_progress.main(str(log), unit, length)
        assert log.read_text() == "".join(lines)
        return capsys.readouterr().out

    return of


def test_progress_and_time_left_are_shown_about_once_a_minute(shown):
    inner = [INNER.format(done, done) for done in (50, 100, 150, 200)]
    # 50 updates in 30 seconds, so 300 take three minutes
    assert shown(inner) == "100 of 400 updates, 3 min left\n200 of 400 updates, 2 min left\n"
    assert shown(inner[:2], "updates", "20000").startswith("100 of 20,000 updates, 3 h 19 min left")


def test_only_validations_and_warnings_are_shown(shown):
    text = shown(["| INFO | fairseq.tasks | dictionary\n", WARNING, VALID, "Traceback\n"])
    assert text == f"{WARNING}200 updates: validation loss 5.5\n"


def test_progress_of_a_translation_is_shown_in_batches(shown):
    lines = [f"INFO:fairseq.logging.progress_bar::  {n:5d} / 40 wps=9\n" for n in (2, 4, 6, 8)]
    # 2 batches in 30 seconds
    expected = "4 of 40 batches, 9 min left\n8 of 40 batches, 8 min left\n"
    assert shown(lines, "batches", "1") == expected
