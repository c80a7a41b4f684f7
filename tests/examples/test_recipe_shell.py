"""examples/lib/common.sh and the options of the scripts: nothing half written, nothing stale."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMON = ROOT / "examples" / "lib" / "common.sh"
RECIPE = ROOT / "examples" / "bible_es_en"
QUICKSTART = ROOT / "scripts" / "quickstart.sh"


def shell(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script that has sourced examples/lib/common.sh."""
    command = ["bash", "-c", f'set -euo pipefail; source "$0"; {script}', str(COMMON)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(script), *arguments]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


# --- files and folders -------------------------------------------------------


def test_a_failed_command_leaves_the_earlier_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    failed = shell("write_whole out bash -c 'echo half; exit 3'", tmp_path)
    assert failed.returncode == 3
    assert (tmp_path / "out").read_text() == "before"


def test_a_successful_command_replaces_the_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    assert shell("write_whole out echo after", tmp_path).returncode == 0
    assert (tmp_path / "out").read_text() == "after\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_command_left_is_taken_over_by_the_next(tmp_path: Path) -> None:
    killed = shell("write_whole out bash -c 'echo half; kill -KILL $PPID'", tmp_path)
    assert killed.returncode == -9
    assert [path.name for path in tmp_path.iterdir()] == ["out.tmp"]
    assert shell("write_whole out echo after", tmp_path).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "after\n"


def test_a_folder_appears_whole_with_its_stamp_and_without_remains(tmp_path: Path) -> None:
    for leftover in ("data", "data.tmp", "data.old"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "stale").touch()
    script = "begin_dir data; echo new >data.tmp/file; finish_dir data settings"
    assert shell(script, tmp_path).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [".done", "file"]
    assert shell("is_done data/.done settings", tmp_path).returncode == 0


def test_who_holds_the_lock_removes_the_folders_that_a_killed_script_was_building(
    tmp_path: Path,
) -> None:
    here = tmp_path / "here"
    killed = shell(
        "mkdir -p here/text; hold_lock $PWD/here; begin_dir $PWD/here/data-bin; "
        "begin_dir $PWD/here/text; rm() { kill -KILL $BASHPID; }; finish_dir $PWD/here/text done",
        tmp_path,
    )
    assert killed.returncode == -9
    (here / "mine.tmp").touch()
    left = {path.name for path in here.iterdir()}
    assert left == {".lock", "data-bin.tmp", "text", "text.old", "mine.tmp"}
    assert shell("hold_lock $PWD/here", tmp_path).returncode == 0
    assert {path.name for path in here.iterdir()} == {".lock", "text", "mine.tmp"}


@pytest.mark.parametrize(
    ("stamp", "product", "done"),
    [("same", True, 0), ("other", True, 1), (None, True, 1), ("same", False, 1)],
)
def test_a_step_is_done_when_its_stamp_fits_and_its_product_is_there(
    stamp: str | None, product: bool, done: int, tmp_path: Path
) -> None:
    if stamp:
        (tmp_path / "stamp").write_text(f"{stamp}\n")
    if product:
        (tmp_path / "product").touch()
    assert shell("is_done stamp same product", tmp_path).returncode == done


def test_a_run_set_aside_never_overwrites_another(tmp_path: Path) -> None:
    for content in ("first", "second"):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "file").write_text(content)
        assert shell("set_aside run 'settings have changed'", tmp_path).returncode == 0
    assert (tmp_path / "run.replaced-1" / "file").read_text() == "first"
    assert (tmp_path / "run.replaced-2" / "file").read_text() == "second"


def test_the_run_name_tells_mappings_and_epochs_apart(tmp_path: Path) -> None:
    texts = ["entmax", "entmax15", "entmax:alpha=1.5", "sparsemax*2", "sparsemax,softmax"]
    texts += ["sparsemax|softmax", "(sparsemax|softmax*7)*3,softmax", "entmax:tv=learned"]
    texts += ["sparsemax|softmax*7,softmax"]
    script = "".join(f"run_name '{text}' {epochs} epochs;" for text in texts for epochs in (1, 11))
    names = shell(script, tmp_path).stdout.split()
    assert len(set(names)) == 2 * len(texts)
    assert not any(set(name) & set("/:*, |()") for name in names)


# --- scores ------------------------------------------------------------------

SCORES = """\
  BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 = 24.53 55.1/30.2/18.4/11.8 (BP = 1.000 ratio = 1.024 hyp_len = 27123 ref_len = 26487)
chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0 = 45.62
"""


@pytest.mark.parametrize(("metric", "score"), [("BLEU", "24.53"), ("chrF2", "45.62")])
def test_the_score_of_a_metric_is_read_from_what_sacrebleu_prints(
    metric: str, score: str, tmp_path: Path
) -> None:
    (tmp_path / "scores.txt").write_text(SCORES)
    assert shell(f"score_of {metric} scores.txt", tmp_path).stdout == f"{score}\n"


def test_a_metric_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "scores.txt").write_text(SCORES)
    missing = shell("score=$(score_of TER scores.txt); echo reached", tmp_path)
    assert missing.returncode == 1
    assert "no TER in scores.txt" in missing.stderr
    assert missing.stdout == ""


# --- where nothing can be written ---------------------------------------------


@pytest.mark.parametrize("command", ["make_dir", "hold_lock", "begin_dir"])
def test_a_folder_that_cannot_be_made_is_named_with_the_remedy(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    refused = shell(f'explain_failures; {command} "$PWD/file/out"', tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert f"nothing can be written to {tmp_path}/file/out" in refused.stderr
    assert "(Not a directory): make it writable, or choose another folder with --output" in (
        refused.stderr
    )


@pytest.mark.parametrize("script", ["prepare.sh", "train.sh", "evaluate.sh", "prune.sh"])
def test_every_step_names_the_output_that_cannot_be_written(script: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    mapping = ["softmax"] if script in ("train.sh", "evaluate.sh") else []
    refused = run(RECIPE / script, "--output", str(tmp_path / "file" / "out"), *mapping)
    assert refused.returncode == 1
    assert f"nothing can be written to {tmp_path}/file/out" in refused.stderr
    assert refused.stderr.count("\n") == 1


# --- checkpoints -------------------------------------------------------------


def write_checkpoint(path: Path, content: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", content * 1000)


def test_a_last_checkpoint_cut_short_is_taken_from_the_best(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint_best.pt", "best")
    whole = (tmp_path / "checkpoint_best.pt").read_bytes()
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        (tmp_path / "checkpoint_last.pt").write_bytes(whole[:cut])
        assert shell("mend_checkpoints .", tmp_path).returncode == 0
        assert (tmp_path / "checkpoint_last.pt").read_bytes() == whole


def test_a_missing_last_checkpoint_is_taken_from_the_best(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint_best.pt", "best")
    (tmp_path / "checkpoint_last.pt.tmp").write_bytes(b"left by a kill")
    assert shell("mend_checkpoints .", tmp_path).returncode == 0
    best = (tmp_path / "checkpoint_best.pt").read_bytes()
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == best
    assert not (tmp_path / "checkpoint_last.pt.tmp").exists()


def test_a_whole_last_checkpoint_is_kept(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint_best.pt", "best")
    write_checkpoint(tmp_path / "checkpoint_last.pt", "last")
    last = (tmp_path / "checkpoint_last.pt").read_bytes()
    assert shell("mend_checkpoints .", tmp_path).returncode == 0
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == last


def test_a_folder_without_checkpoints_needs_no_mending(tmp_path: Path) -> None:
    assert shell("mend_checkpoints .", tmp_path).returncode == 0
    assert shell("mend_checkpoints not-there-yet", tmp_path).returncode == 0


@pytest.mark.parametrize("broken", ["checkpoint_best.pt", "checkpoint_last.pt"])
def test_checkpoints_that_nothing_can_mend_are_reported(broken: str, tmp_path: Path) -> None:
    (tmp_path / broken).write_bytes(b"not a checkpoint")
    assert shell("mend_checkpoints .", tmp_path).returncode == 1


def test_a_flipped_byte_is_seen(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "file.pt", "weights")
    assert shell("checkpoint_is_whole file.pt", tmp_path).returncode == 0
    content = bytearray((tmp_path / "file.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "file.pt").write_bytes(content)
    assert shell("checkpoint_is_whole file.pt", tmp_path).returncode == 1


# --- one run at a time -------------------------------------------------------


@pytest.mark.slow
def test_what_a_killed_script_started_still_keeps_others_out(tmp_path: Path) -> None:
    held = 'hold_lock "$PWD"; sleep 60 >/dev/null 2>&1 & echo $! >child; kill -9 $$'
    assert shell(held, tmp_path).returncode == -9
    child = (tmp_path / "child").read_text().strip()
    try:
        refused = shell('hold_lock "$PWD"', tmp_path)
        assert refused.returncode == 1
        assert f"another run is at work in {tmp_path}" in refused.stderr
        assert child in refused.stderr
    finally:
        subprocess.run(["kill", "-9", child], check=True)
    time.sleep(0.2)
    assert shell('hold_lock "$PWD"', tmp_path).returncode == 0


# --- options -----------------------------------------------------------------

QUICKSTART_ERRORS = [
    (["--epochs", "0"], "--epochs got '0'"),
    (["--epochs", "-1"], "--epochs got '-1'"),
    (["--epochs", "2.5"], "--epochs got '2.5'"),
    (["--epochs", "many"], "--epochs got 'many'"),
    (["--epochs"], "--epochs needs a value"),
    (["--mapping", "soft max"], "--mapping got 'soft max'"),
    (["--mapping", ""], "--mapping got ''"),
    (["--output", "a:b"], "--output got 'a:b'"),
    (["--output", ""], "--output got ''"),
    (["--compare", "--mapping", "softmax"], "together with --compare"),
    (["--epoch", "3"], "unknown option '--epoch'"),
    (["extra"], "unknown option 'extra'"),
]


@pytest.mark.parametrize(("arguments", "message"), QUICKSTART_ERRORS)
def test_the_quickstart_refuses_a_wrong_option_in_one_sentence(
    arguments: list[str], message: str
) -> None:
    refused = run(QUICKSTART, *arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert refused.stdout == ""


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("prepare.sh", ["--ouput", "x"], "unknown option '--ouput'"),
        ("train.sh", [], "no mapping given"),
        ("train.sh", ["--epochs", "x", "softmax"], "--epochs got 'x'"),
        ("train.sh", ["--name", "../elsewhere", "softmax"], "--name got '../elsewhere'"),
        ("train.sh", ["softmax", "--max-epoch", "3"], "give --epochs N before the mapping"),
        ("train.sh", ["softmax", "--save-dir=x"], "option --save-dir is set by the recipe"),
        ("evaluate.sh", ["softmax", "extra"], "unknown argument 'extra'"),
    ],
)
def test_a_step_refuses_a_wrong_option_in_one_sentence(
    script: str, arguments: list[str], message: str
) -> None:
    refused = run(RECIPE / script, *arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "script", [QUICKSTART, *(RECIPE / f"{step}.sh" for step in ("prepare", "train", "evaluate"))]
)
def test_help_names_every_option_the_script_takes(script: Path) -> None:
    shown = run(script, "--help")
    assert shown.returncode == 0
    options = ["--output", "--help"]
    if script.name != "prepare.sh":
        options += ["--epochs", "--cpu", "--gpu"]
    assert all(option in shown.stdout for option in options)
