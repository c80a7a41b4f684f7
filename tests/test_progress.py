"""How far long work is, and that short work says nothing."""

import io
import time

import pytest

from fairseq_entmax import progress
from fairseq_entmax.progress import Progress, said_if_long, watched


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """Goes on by a second each time that a step is counted."""

    def __init__(self):
        self.seconds = -1.0

    def __call__(self):
        self.seconds += 1.0
        return self.seconds


def lines_of(steps, **options):
    stream = io.StringIO()
    with Progress("work", stream=stream, clock=Clock(), **options) as shown:
        for _ in range(steps):
            shown.advance()
    return stream.getvalue().splitlines()


def test_work_of_less_than_three_seconds_says_nothing():
    assert lines_of(2, total=2) == []


def test_a_line_says_what_is_done_and_how_long_the_rest_takes():
    assert lines_of(3, total=12, unit="batches") == [
        "work: 25%, 3 of 12 batches in 0:03, 0:09 left"
    ]


def test_of_work_of_unknown_length_a_line_says_what_is_done():
    assert lines_of(3) == ["work: 3 in 0:03"]


def test_lines_in_a_file_become_rarer_until_two_a_minute():
    steps = [int(line.split()[2]) for line in lines_of(120, total=120)]
    assert steps == [3, 6, 12, 24, 48, 78, 108]


def test_progress_that_is_not_wanted_says_nothing():
    assert lines_of(50, total=50, is_shown=False) == []


def test_a_terminal_has_one_line_that_is_gone_in_the_end():
    stream = Terminal()
    with Progress("work", 10, stream=stream, clock=Clock()) as shown:
        for _ in range(10):
            shown.advance()
    text = stream.getvalue()
    assert "\n" not in text
    assert "work: 50%, 5 of 10 in 0:05, 0:05 left" in text
    *_, last, end = text.split("\r")
    assert (last.strip(), end) == ("", "")


def test_items_pass_as_they_are(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SHORT", 0.0)
    assert list(watched([5, 6], "work")) == [5, 6]
    assert capsys.readouterr().err.startswith("work: 50%, 1 of 2 in 0:00")


def test_a_long_block_is_announced_and_a_short_one_is_not(monkeypatch):
    stream = io.StringIO()
    with said_if_long("a file is read", stream):
        pass
    monkeypatch.setattr(progress, "SHORT", 0.01)
    with said_if_long("another file is read", stream):
        deadline = time.monotonic() + 30
        while not stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.005)
    assert stream.getvalue() == "another file is read\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (65, "1:05"), (7265, "2:01:05")]
)
def test_durations_are_written_as_clocks_do(seconds, text):
    assert progress.duration(seconds) == text
