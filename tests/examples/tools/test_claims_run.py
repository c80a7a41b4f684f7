"""examples/tools/claims_run.py: options, the runs of a plan, and what is said of failures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from claims_run import (
    failures,
    fingerprint,
    main,
    move_others_out,
    numbers,
    write_table,
)
from jobs import Outcome
from messages import UsageError


def test_seeds_are_whole_numbers() -> None:
    assert numbers("1,2,30") == [1, 2, 30]
    for wrong in ("", "1,", "01", "-1", "1.5"):
        with pytest.raises(UsageError, match="give whole numbers"):
            numbers(wrong)


def test_runs_outside_the_plan_are_moved_out_of_the_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, others = tmp_path / "record", tmp_path / "others"
    names = ["record.json", "a/one.json.xz", "a/two.json.xz", "a/speed.json", "b/one.json.xz"]
    for name in names:
        (record / name).parent.mkdir(parents=True, exist_ok=True)
        (record / name).write_text(name)
    assert move_others_out(record, [record / "a/one.json.xz", record / "a/speed.json"], others) == 2
    assert sorted(f"{path.relative_to(others)}" for path in others.rglob("*.xz")) == [
        *("a/two.json.xz", "b/one.json.xz"),
    ]
    assert {path.name for path in (record / "a").iterdir()} == {"one.json.xz", "speed.json"}
    assert (record / "record.json").exists()
    assert "2 files of runs that were not asked for now" in capsys.readouterr().out
    assert move_others_out(record, [record / "a/one.json.xz", record / "a/speed.json"], others) == 0


def test_other_settings_of_a_recipe_are_told_from_the_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "dataset.sh").write_text("LENGTH=7\n")
    before = fingerprint(tmp_path, tmp_path)
    assert fingerprint(tmp_path, tmp_path) == before
    (tmp_path / "dataset.sh").write_text("LENGTH=8\n")
    assert fingerprint(tmp_path, tmp_path) != before


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", r"record\.json is damaged \(Expecting"), ("[]", r"record\.json has no JSON object")],
)
def test_a_damaged_record_is_named(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "record.json").write_text(text)
    options = ("--corpora", "bible_es_en", "--output", str(tmp_path), "--record", str(tmp_path))
    with pytest.raises(SystemExit):
        main(["check", *options])
    assert re.search(message, capsys.readouterr().err)


def test_failed_jobs_are_named_with_what_was_left_out() -> None:
    said = failures(Outcome(failed=["a/train"], left=["a/keep"]))
    assert said.startswith("1 jobs failed (a/train), and 1 that need them were left out")


def test_a_table_that_cannot_be_made_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r"claims\.md"):
        write_table(tmp_path / "no-record", tmp_path)
    with pytest.raises(SystemExit):
        main(["table", "--record", str(tmp_path / "no-record"), "--output", str(tmp_path)])
    assert "claims.md" in capfd.readouterr().err
