"""examples/tools/jobs.py: dependencies, order, failures, signals, and going on after them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import Job, Pool, fingerprints, spent

TOOLS = Path(__file__).resolve().parents[3] / "examples" / "tools"
PATIENCE = 30  # seconds


def shell(name: str, script: str, *after: str, **options: object) -> Job:
    return Job(name, ("bash", "-c", script), after, **options)  # type: ignore[arg-type]


def pool(jobs: list[Job], folder: Path, most: int = 2) -> Pool:
    return Pool(jobs, folder / "state", most, tell=lambda line: None)


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


# --- order ---------------------------------------------------------------------------


def test_a_job_begins_once_those_that_it_needs_are_done(tmp_path: Path) -> None:
    log = tmp_path / "log"
    jobs = [
        shell("slow", f"sleep 0.3; echo slow >>{log}"),
        shell("behind", f"echo behind >>{log}", "slow"),
        shell("free", f"echo free >>{log}"),
    ]
    outcome = pool(jobs, tmp_path).run()
    assert lines(log) == ["free", "slow", "behind"]
    assert sorted(outcome.ran) == ["behind", "free", "slow"]


def test_jobs_that_can_begin_do_so_in_the_order_of_the_list(tmp_path: Path) -> None:
    log = tmp_path / "log"
    jobs = [shell(f"j{number}", f"echo {number} >>{log}") for number in range(5)]
    pool(jobs, tmp_path, most=1).run()
    assert lines(log) == ["0", "1", "2", "3", "4"]


def test_no_more_run_at_once_than_may(tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/at-$$; ls -d {tmp_path}/at-* | wc -l >>{tmp_path}/log; sleep 0.2; rmdir {tmp_path}/at-$$"
    pool([shell(f"j{number}", script) for number in range(6)], tmp_path, most=2).run()
    assert len(lines(tmp_path / "log")) == 6
    assert max(map(int, lines(tmp_path / "log"))) == 2


def test_a_job_that_runs_alone_runs_behind_all_others(tmp_path: Path) -> None:
    log = tmp_path / "log"
    jobs = [
        shell("alone", f"echo begin >>{log}; sleep 0.2; echo end >>{log}", alone=True),
        shell("one", f"sleep 0.2; echo one >>{log}"),
        shell("two", f"echo two >>{log}", "one"),
    ]
    pool(jobs, tmp_path, most=3).run()
    assert lines(log) == ["one", "two", "begin", "end"]


def test_a_job_that_runs_at_once_goes_before_all_that_can_begin(tmp_path: Path) -> None:
    log = tmp_path / "log"
    jobs = [
        shell("one", f"echo one >>{log}"),
        shell("long", f"sleep 0.5; echo long >>{log}"),
        shell("two", f"echo two >>{log}", "one"),
        shell(
            *("first", f"echo begin >>{log}; sleep 0.2; echo end >>{log}", "one"),
            **{"alone": True, "at_once": True},
        ),
    ]
    pool(jobs, tmp_path, most=2).run()
    assert lines(log) == ["one", "long", "begin", "end", "two"]


def test_a_job_that_ran_at_once_before_holds_nothing_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = shell("first", ":", "one", alone=True, at_once=True)
    pool([shell("one", ":"), first], tmp_path).run()
    others = [
        shell("long", f"sleep 0.4; echo long >>{log}"),
        shell("two", f"echo two >>{log}", "first"),
    ]
    pool([shell("one", ":"), others[0], first, others[1]], tmp_path).run()
    assert lines(log) == ["two", "long"]


def test_a_job_sees_its_environment_and_what_it_prints_is_in_its_log(tmp_path: Path) -> None:
    job = shell("a/b", 'echo "seed $SEED"; echo bad >&2', environment={"SEED": "7"})
    pool([job], tmp_path).run()
    assert (tmp_path / "state/logs/a.b.log").read_text() == "seed 7\nbad\n"


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([shell("a", ":"), shell("a", ":")], "the job a is there twice"),
        ([shell("a", ":", "b"), shell("b", ":")], "a needs b, which does not stand before"),
    ],
)
def test_a_list_that_cannot_be_run_is_refused(jobs: list[Job], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fingerprints(jobs)


# --- what was done before --------------------------------------------------------------


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    jobs = [shell("a", f"echo a >>{log}"), shell("b", f"echo b >>{log}", "a")]
    pool(jobs, tmp_path).run()
    again = pool(jobs, tmp_path).run()
    assert lines(log) == ["a", "b"]
    assert (again.done, again.ran) == (["a", "b"], [])
    assert len(list((tmp_path / "state/calls").iterdir())) == 1


def test_a_job_with_other_settings_is_done_again_and_what_needs_it(tmp_path: Path) -> None:
    def jobs(settings: str) -> list[Job]:
        log = tmp_path / "log"
        return [
            shell("a", f"echo a >>{log}", settings=settings),
            shell("b", f"echo b >>{log}", "a"),
            shell("c", f"echo c >>{log}"),
        ]

    pool(jobs("old"), tmp_path, most=1).run()
    assert pool(jobs("new"), tmp_path, most=1).run().ran == ["a", "b"]


def test_a_job_whose_product_is_gone_is_done_again_and_what_needs_it(tmp_path: Path) -> None:
    product = tmp_path / "product"
    jobs = [shell("a", f"touch {product}", products=(product,)), shell("b", ":", "a")]
    pool(jobs, tmp_path).run()
    product.unlink()
    assert pool(jobs, tmp_path).run().ran == ["a", "b"]


def test_what_was_not_reached_behind_a_job_that_ran_again_is_not_taken_for_done(
    tmp_path: Path,
) -> None:
    product, broken, log = tmp_path / "product", tmp_path / "broken", tmp_path / "log"
    jobs = [
        shell("train", f"touch {product}", products=(product,)),
        shell("measure", f"test ! -e {broken}", "train"),
        shell("keep", f"echo kept >>{log}", "measure"),
        shell("free", f"echo free >>{log}"),
    ]
    pool(jobs, tmp_path, most=1).run()
    product.unlink()
    broken.touch()
    assert pool(jobs, tmp_path, most=1).run().failed == ["measure"]
    broken.unlink()
    assert pool(jobs, tmp_path, most=1).run().ran == ["measure", "keep"]
    assert lines(log).count("kept") == 2
    assert lines(log).count("free") == 1


def test_what_is_kept_of_attempts_and_calls_says_by_what_they_were_made(tmp_path: Path) -> None:
    job = shell("a", ":", attempts=tmp_path / "attempts")
    Pool([job], tmp_path / "state", 1, tell=lambda line: None, about={"commit": "abc"}).run()
    for folder in ("attempts", "state/calls"):
        [path] = (tmp_path / folder).iterdir()
        assert json.loads(path.read_text())["commit"] == "abc"


def test_an_attempt_that_found_everything_done_is_none(tmp_path: Path) -> None:
    log, attempts = tmp_path / "train.log", tmp_path / "attempts"
    script = f"test -e {log} || echo trained >{log}"
    for settings in ("old", "new"):
        job = shell("a", script, settings=settings, attempts=attempts, worked=log)
        assert pool([job], tmp_path).run().ran == ["a"]
    assert len(list(attempts.iterdir())) == 1


# --- failures --------------------------------------------------------------------------


def test_what_a_killed_pool_was_writing_goes_when_the_next_begins(tmp_path: Path) -> None:
    job = shell("one", "true", attempts=tmp_path / "attempts")
    names = ("state/done/other.tmp", "state/calls/1.json.tmp", "attempts/2.json.tmp")
    left = [tmp_path / name for name in names]
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_text("half")
    Pool([job], tmp_path / "state", 1, tell=lambda line: None).run()
    assert [path for path in left if path.exists()] == []
    assert (tmp_path / "state" / "done" / "one").exists()


def test_a_failure_leaves_out_what_needs_it_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        shell("bad", "echo the reason; exit 3"),
        shell("needs", ":", "bad"),
        shell("needs-too", ":", "needs"),
        shell("free", "sleep 0.2"),
        shell("behind-free", ":", "free"),
    ]
    failing = pool(jobs, tmp_path)
    outcome = failing.run()
    assert outcome.failed == ["bad"]
    assert outcome.left == ["needs", "needs-too"]
    assert outcome.ran == ["free", "behind-free"]
    failing.report_failures()
    assert "the reason" in capsys.readouterr().err


def test_a_job_without_its_product_has_failed(tmp_path: Path) -> None:
    jobs = [shell("a", ":", products=(tmp_path / "product",))]
    assert pool(jobs, tmp_path).run().failed == ["a"]


def test_a_failed_job_is_tried_again(tmp_path: Path) -> None:
    jobs = [shell("a", f"test -e {tmp_path}/fixed")]
    pool(jobs, tmp_path).run()
    (tmp_path / "fixed").touch()
    assert pool(jobs, tmp_path).run().ran == ["a"]


# --- seconds of processors ---------------------------------------------------------------

BUSY = "import time\nwhile time.process_time() < {}: pass"


def test_the_seconds_of_every_attempt_are_kept(tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    script = f"{sys.executable} -c '{BUSY.format(0.4)}'; test -e {tmp_path}/fixed"
    jobs = [shell("a", script, attempts=attempts)]
    pool(jobs, tmp_path).run()
    (tmp_path / "fixed").touch()
    pool(jobs, tmp_path).run()
    assert len(list(attempts.iterdir())) == 2
    assert 0.8 <= spent(attempts) < 3
    # The calls have the same, rounded
    assert spent(tmp_path / "state/calls") == pytest.approx(spent(attempts), abs=0.02)


# --- stopping ------------------------------------------------------------------------------

CALL = """
import sys
from pathlib import Path
import jobs
jobs.SAMPLE = 0.2
folder = Path(sys.argv[1])
busy = f"{sys.executable} -c 'while True: pass'"
script = f"echo $$ >>{folder}/begun; test -e {folder}/fixed || {{ touch {folder}/at-work; {busy}; }}"
list_of = [
    jobs.Job("first", ("true",)),
    jobs.Job("long", ("bash", "-c", script), ("first",), attempts=folder / "attempts"),
]
outcome = jobs.Pool(list_of, folder / "state", 2).run()
print(outcome.ran, outcome.left, flush=True)
sys.exit(128 + outcome.signal if outcome.signal else 0)
"""


def call(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CALL, str(folder)],
        cwd=TOOLS,
        env={**os.environ, "PYTHONPATH": str(TOOLS)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(group: int) -> bool:
    """Tell whether all processes of a group end in time."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system lists no processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_pool_leaves_no_process_and_goes_on(number: int, tmp_path: Path) -> None:
    begun = call(tmp_path)
    wait_for(tmp_path / "at-work")
    wait_for(tmp_path / "attempts")
    deadline = time.monotonic() + PATIENCE
    while spent(tmp_path / "attempts") <= 0.1 and time.monotonic() < deadline:
        time.sleep(0.05)  # a sample of what the job has worked is kept now and then
    os.killpg(begun.pid, number)
    printed, _ = begun.communicate(timeout=PATIENCE)
    assert begun.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert ended(int(lines(tmp_path / "begun")[0]))
    if number != signal.SIGKILL:
        assert "['first'] ['long']" in printed
    before = spent(tmp_path / "attempts")
    assert before > 0.1
    # What was done is not done again, and what was stopped is, with the account of both attempts
    (tmp_path / "fixed").touch()
    again = call(tmp_path)
    printed, _ = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0
    assert "['long'] []" in printed
    assert spent(tmp_path / "attempts") >= before
    assert len(list((tmp_path / "state/calls").iterdir())) == 2
    for path in (tmp_path / "state/calls").iterdir():
        assert json.loads(path.read_text())["seconds"] > 0
