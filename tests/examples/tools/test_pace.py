"""examples/tools/pace.py: how many updates make an equal time."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pace import in_turns, main, ratio_of, updates_in_equal_time


def test_the_ratio_is_of_updates_a_second_in_the_same_round() -> None:
    # Twice as long for as many updates, and what the machine did in the second round met both
    assert ratio_of([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == pytest.approx(0.5)


def test_as_many_updates_as_take_the_same_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pace.json").write_text(json.dumps({"ratio": 0.75}))
    main(["updates", str(tmp_path / "pace.json"), "16552"])
    assert capsys.readouterr().out == "12414\n"
    assert updates_in_equal_time({"ratio": 0.01}, 8) == 1


def test_the_models_take_turns_and_a_first_round_is_not_counted() -> None:
    done: list[str] = []

    def slow() -> None:
        done.append("slow")
        time.sleep(0.02)

    taken = in_turns([slow, lambda: done.append("quick")], rounds=3, device="cpu")
    assert done == ["slow", "quick"] * 4
    assert [len(rounds) for rounds in taken] == [3, 3]
    assert ratio_of(*taken) < 1
