"""examples/tools/claims_added.py: what a record lacks is made, and what it has is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from claims_added import check_addable, left_to_do, together
from claims_plan import CorpusJobs, Setting, plan
from claims_scope import LARGE, Budget, Scope
from jobs import Job
from messages import UsageError

SCOPE = Scope(
    {LARGE: ("softmax", "entmax15")}, pruned=("softmax",), budgets=(Budget("all=24", True),)
)


def planned(folder: Path, seeds: list[int]) -> list[Job]:
    setting = Setting("a", folder, folder / "a", folder / "record" / "a", "cpu")
    return plan([CorpusJobs(setting, SCOPE)], seeds, ("table",))


def record(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / "record" / "a" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


OF_SEED = (
    *("softmax-large-seed1.json.xz", "entmax15-large-seed1.json.xz"),
    *("softmax-large-seed1-all24-pruned.json.xz", "softmax-large-seed1-all24-scratch.json.xz"),
    "softmax-large-seed1-continued.json.xz",
)


def test_a_record_without_anything_takes_the_whole_plan(tmp_path: Path) -> None:
    jobs = planned(tmp_path, [1, 2])
    assert left_to_do(jobs, tmp_path / "record") == jobs


def test_a_seed_of_the_record_is_not_made_again(tmp_path: Path) -> None:
    record(tmp_path, *OF_SEED, "speed.json")
    jobs = left_to_do(planned(tmp_path, [1, 2]), tmp_path / "record")
    assert jobs
    assert all("seed2" in job.name for job in jobs)
    of_two = [job for job in planned(tmp_path, [2]) if "seed2" in job.name]
    assert [job.name for job in jobs] == [job.name for job in of_two]
    record(tmp_path, *(name.replace("seed1", "seed2") for name in OF_SEED))
    assert left_to_do(planned(tmp_path, [1, 2]), tmp_path / "record") == []


def test_what_a_missing_run_needs_is_trained_again(tmp_path: Path) -> None:
    record(tmp_path, *OF_SEED, "speed.json")
    (tmp_path / "record" / "a" / "softmax-large-seed1-continued.json.xz").unlink()
    jobs = left_to_do(planned(tmp_path, [1]), tmp_path / "record")
    assert [job.name for job in jobs] == [
        "a/softmax-large-seed1/train",
        *(f"a/softmax-large-seed1-continued/{kind}" for kind in ("continue", "measure", "keep")),
    ]


def test_speed_alone_is_measured_of_models_that_are_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, *OF_SEED)
    jobs = planned(tmp_path, [1, 2])
    record(tmp_path, *(name.replace("seed1", "seed2") for name in OF_SEED))
    assert left_to_do(jobs, tmp_path / "record") == []
    said = capsys.readouterr().out
    assert (
        "a/speed is left out, as models are not here any more: a/softmax-large-seed1/train" in said
    )
    for job in jobs:
        if "seed1" in job.name and job.name.endswith(("/train", "/search", "/recover")):
            for path in job.products:
                path.parent.mkdir(parents=True)
                path.touch()
    left = {job.name: job for job in left_to_do(jobs, tmp_path / "record")}
    assert not capsys.readouterr().out
    # Trainings that are there find themselves done; what is recorded is neither measured nor kept anew
    assert list(left) == [
        *(f"a/{model}-large-seed1/train" for model in ("softmax", "entmax15")),
        *(f"a/softmax-large-seed1-all24-pruned/{kind}" for kind in ("search", "recover")),
        "a/speed",
    ]
    assert left["a/speed"].after == (
        *(f"a/{model}-large-seed1/train" for model in ("softmax", "entmax15")),
        "a/softmax-large-seed1-all24-pruned/recover",
    )


def test_speed_waits_for_runs_that_are_made_and_models_that_are_here(tmp_path: Path) -> None:
    record(tmp_path, *OF_SEED[1:])
    jobs = planned(tmp_path, [1])
    for job in jobs:
        if job.name.endswith(("/train", "/search", "/recover")):
            for path in job.products:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
    left = {job.name: job for job in left_to_do(jobs, tmp_path / "record")}
    assert left["a/speed"].after == (
        "a/softmax-large-seed1/keep",
        "a/entmax15-large-seed1/train",
        "a/softmax-large-seed1-all24-pruned/recover",
    )


def test_a_table_between_seeds_waits_for_what_is_made(tmp_path: Path) -> None:
    record(tmp_path, *OF_SEED[1:], "speed.json")
    jobs = {job.name: job for job in left_to_do(planned(tmp_path, [1, 2]), tmp_path / "record")}
    assert jobs["table/seed1"].after == ("a/softmax-large-seed1/keep",)


ABOUT = {"seeds": [1], "more_seeds": [], "corpora": ["a"], "models": ["m"], "sizes": ["large"]}


def test_calls_and_choices_add_up() -> None:
    before = {**ABOUT, "date": "old", "history": [{"call": "1", "hours": 2}]}
    now = {**ABOUT, "seeds": [2, 1], "corpora": ["b"], "date": "new"}
    now["history"] = [{"call": "2", "hours": 3}]
    joined = together(before, now)
    assert joined["seeds"] == [1, 2]
    assert joined["corpora"] == ["a", "b"]
    assert joined["date"] == "new"
    assert [one["call"] for one in joined["history"]] == ["1", "2"]
    # A call that goes on is in the record already
    assert together(joined, now)["history"] == joined["history"]


def test_models_of_another_length_do_not_stand_beside_each_other() -> None:
    about = {"epochs": None, "patience": None}
    check_addable(about, {"epochs": None, "patience": None}, Path("record"))
    with pytest.raises(
        UsageError, match=r"epochs the recipe's, and this call has 3: give the same --epochs"
    ):
        check_addable(about, {"epochs": 3, "patience": None}, Path("record"))
