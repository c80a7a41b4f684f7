"""examples/bible_es_en/claims.sh --quick: from data to the record, killed and gone on with.

One record is made for all tests, in a call that is killed on the way and a second one.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "bible_es_en" / "claims.sh"
TABLE_MAKER = ROOT / "examples" / "tools" / "claims" / "__main__.py"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
# All kinds of jobs: of both sizes, pruned, ablated, and of a mapping of one attention
CHOSEN = ("--quick", "--models", "softmax,entmax,entmax15,cross-fusedmax", "--cpu", "--jobs", "2")
PATIENCE = 600  # seconds
PRUNED = "softmax-large-seed1-all24-pruned"
RUNS = {
    *("softmax-large-seed1", "entmax-large-seed1", "softmax-small-seed1", "entmax-small-seed1"),
    *("cross-fusedmax-small-seed1", PRUNED, "softmax-large-seed1-all24-scratch"),
    *("entmax15-large-seed1", "entmax15-small-seed1", "entmax-large-seed1-equaltime"),
    "softmax-large-seed1-continued",
}
SPLITS = ("train", "valid", "test")
SEARCHED, RECOVERED, TRAINED = 8, 6, 14  # updates of a trial


def start(*arguments: str | Path, path: str = PATH) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(SCRIPT), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def call(*arguments: str | Path, path: str = PATH) -> tuple[int, str]:
    process = start(*arguments, path=path)
    printed, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, printed


@dataclass
class Made:
    """What two calls made.

    Attributes:
        done: jobs that the first had done when it was killed.
        printed: by the second.
    """

    folder: Path
    path: str
    done: set[str]
    printed: str

    def record(self, run: str) -> dict[str, Any]:
        path = self.folder / "record" / "bible_es_en" / f"{run}.json.xz"
        return json.loads(lzma.decompress(path.read_bytes()))

    def about(self) -> dict[str, Any]:
        return json.loads((self.folder / "record" / "record.json").read_text())


def done_jobs(folder: Path) -> set[str]:
    return {path.name for path in (folder / "jobs" / "done").glob("*") if path.suffix != ".tmp"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("claims")
    path = preloaded.path(PATH)
    first = start(*CHOSEN, "--output", folder, path=path)
    # In the middle of a search for heads to prune, which needs what was trained before
    search = folder / "bible_es_en" / "runs" / PRUNED.replace("pruned", "search") / "train.log"
    deadline = time.monotonic() + PATIENCE
    while not search.exists():
        assert first.poll() is None, first.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    done = done_jobs(folder)
    status, printed = call(*CHOSEN, "--output", folder, path=path)
    if TABLE_MAKER.exists():
        assert status == 0, printed
    assert "jobs failed" not in printed, printed
    return Made(folder, path, done, printed)


pytestmark = pytest.mark.slow


def test_the_record_has_each_run_once(made: Made) -> None:
    files = {path.name for path in (made.folder / "record" / "bible_es_en").iterdir()}
    assert files == {f"{run}.json.xz" for run in RUNS} | {"speed.json"}
    for run in RUNS:
        assert made.record(run)["run"] == run


def test_a_trial_has_few_pairs(made: Made) -> None:
    text = made.folder / "bible_es_en" / "text"
    counts = [len((text / f"{split}.en").read_bytes().splitlines()) for split in SPLITS]
    assert counts == [240, 16, 12]


def test_what_was_done_before_the_kill_was_not_done_again(made: Made) -> None:
    assert "bible_es_en.softmax-large-seed1.train" in made.done
    started = {name.replace("/", ".") for name in re.findall(r"started (\S+);", made.printed)}
    assert not started & made.done
    assert started | made.done == done_jobs(made.folder)


def test_no_update_is_lost_or_counted_twice(made: Made) -> None:
    baseline = made.record("softmax-large-seed1")
    assert baseline["updates"] == baseline["own_updates"] == TRAINED
    pruned = made.record(PRUNED)
    assert pruned["own_updates"] == SEARCHED + RECOVERED
    assert pruned["updates"] == TRAINED + SEARCHED + RECOVERED
    assert pruned["curve"][-1]["updates"] == SEARCHED + RECOVERED
    continued = made.record("softmax-large-seed1-continued")
    assert continued["updates"] == made.record("softmax-large-seed1-all24-scratch")["updates"]
    assert continued["updates"] == pruned["updates"]
    for run in RUNS:
        updates = [point["updates"] for point in made.record(run)["curve"]]
        assert updates == sorted(set(updates))


def test_learned_alpha_has_also_as_many_updates_as_another_takes_time_for(made: Made) -> None:
    ratio = json.loads((made.folder / "bible_es_en" / "pace.json").read_text())["ratio"]
    equal = made.record("entmax-large-seed1-equaltime")
    assert equal["role"] == "equaltime"
    assert equal["updates"] == max(1, round(TRAINED * ratio))
    assert equal["heads"] == made.record("entmax15-large-seed1")["heads"]


def test_the_heads_of_a_pruned_model_are_those_kept_and_those_trained_from_scratch(
    made: Made,
) -> None:
    pruned = made.record(PRUNED)
    heads = {name: [len(layer) for layer in kept] for name, kept in pruned["kept"].items()}
    assert heads == pruned["heads"]
    assert sum(map(sum, heads.values())) == 24
    scratch = made.record("softmax-large-seed1-all24-scratch")
    assert scratch["heads"] == heads
    assert pruned["search"][-1]["updates"] == SEARCHED
    assert pruned["search"][-1]["open"] == {name: sum(layers) for name, layers in heads.items()}
    assert scratch["search"] is None
    assert sum(map(sum, made.record("softmax-large-seed1-continued")["heads"].values())) == 72


def test_a_run_of_the_record_is_as_its_model_was_measured(made: Made) -> None:
    run, folder = made.record("entmax-small-seed1"), made.folder / "bible_es_en"
    analysis = json.loads(
        (folder / "runs/entmax-small-seed1/analysis/analysis.json").read_text(encoding="utf-8")
    )
    assert run["analysis"]["models"][0]["attentions"] == analysis["models"][0]["attentions"]
    assert run["analysis"]["models"][0]["records"]["alpha"]
    references = (folder / "text/test.en").read_text(encoding="utf-8").splitlines()
    assert len(run["translation"]["sentences"]) == len(references)
    scores = (folder / "runs/entmax-small-seed1/scores.txt").read_text()
    printed = float(re.search(r"BLEU\|.* = (\S+) \S+ \(BP", scores)[1])  # type: ignore[index]
    assert run["translation"]["bleu"] == pytest.approx(printed, abs=0.006)
    assert run["ablation"]["significance"]["bootstrap"] == 10000
    assert made.record("cross-fusedmax-small-seed1")["ablation"] is None


def test_the_record_has_no_path_of_the_machine(made: Made) -> None:
    for run in RUNS:
        assert str(made.folder) not in json.dumps(made.record(run))


def test_speed_was_measured_of_all_that_were_trained_and_pruned(made: Made) -> None:
    speed = json.loads((made.folder / "record/bible_es_en/speed.json").read_text())
    timed = {model["run"]: model for model in speed["models"]}
    assert set(timed) == {
        run for run in RUNS if not run.endswith(("scratch", "continued", "equaltime"))
    }
    assert all(model["updates_per_second"] > 0 for model in timed.values())
    assert timed["softmax-large-seed1"]["density"]["cross"] == 1


def test_the_account_has_both_calls_and_all_attempts(made: Made) -> None:
    about = made.about()
    assert about["calls"] == 2
    assert about["quick"] is True
    [preparation] = (made.folder / "jobs" / "preparations").iterdir()
    assert about["hours"] > json.loads(preparation.read_text())["seconds"] / 3600 > 0
    assert [bool(one.get("prepares")) for one in about["history"]] == [True, False, False]
    assert len(made.record(PRUNED)["trained_by"]) == 1
    attempts = made.folder / "bible_es_en/runs" / PRUNED.replace("pruned", "search") / "attempts"
    assert 1 <= len(list(attempts.iterdir())) <= 2
    assert made.record(PRUNED)["cpu_seconds"] > 0


def test_a_record_gains_what_it_lacks_without_the_models_of_the_others(
    made: Made, tmp_path: Path
) -> None:
    record, output = tmp_path / "record", tmp_path / "elsewhere"
    shutil.copytree(made.folder / "record", record)
    missing = record / "bible_es_en" / "cross-fusedmax-small-seed1.json.xz"
    missing.unlink()
    before = {path: path.read_bytes() for path in record.rglob("*.xz")}
    one = ("--quick", "--models", "cross-fusedmax", "--sizes", "small", "--cpu", "--jobs", "2")
    where = ("--output", output, "--record", record, "--add")
    status, printed = call(*one, *where, path=made.path)
    assert status == 0, printed
    started = re.findall(r"started (\S+);", printed)
    kinds = ("train", "measure", "keep")
    assert started == [f"bible_es_en/cross-fusedmax-small-seed1/{kind}" for kind in kinds]
    assert {path: path.read_bytes() for path in before} == before
    assert json.loads(lzma.decompress(missing.read_bytes()))["run"] == "cross-fusedmax-small-seed1"
    about, earlier = json.loads((record / "record.json").read_text()), made.about()
    assert about["calls"] == earlier["calls"] + 1
    assert about["hours"] > earlier["hours"]
    assert set(about["models"]) == set(earlier["models"])
    assert "verdicts: " in printed
    status, printed = call(*one, "--epochs", "2", *where, path=made.path)
    assert status != 0
    assert "give the same --epochs" in printed


def test_nothing_half_written_is_left(made: Made) -> None:
    assert list(made.folder.rglob("*.tmp")) == []


def test_run_again_it_has_nothing_to_do_and_the_record_keeps_its_bytes(made: Made) -> None:
    def content() -> dict[Path, bytes]:
        files = (path for path in (made.folder / "record").rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files}

    before = content()
    _, printed = call(*CHOSEN, "--output", made.folder, path=made.path)
    assert "jobs done, 0 of them now" in printed
    assert content() == before
