"""The commands of docs/pruning.md, as printed, with fewer updates."""

import os
import re
import shlex
import subprocess

import pytest

from fairseq_entmax.pruning import checkpoint_layers
from tests import preloaded
from tests.commands import COMMANDS, ROOT, SIZES, hypotheses, run

CHAPTER = (ROOT / "docs" / "pruning.md").read_text(encoding="utf-8")

# Updates in the chapter, how often they occur, and the number of updates here
LENGTHS = ((1817, 2, 12), (1726, 1, 11), (3634, 2, 6))


@pytest.fixture(scope="module")
def walked(data, tmp_path_factory):
    """The folder after all commands of the chapter, and the finished process."""
    script = re.search(r"```sh\n(model=\(.*?)```", CHAPTER, re.DOTALL)[1]
    folder = tmp_path_factory.mktemp("chapter")
    checkpoints = folder / "quickstart" / "runs" / "entmax-5epochs" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (folder / "quickstart" / "data-bin").symlink_to(data / "bin")
    # The model as quickstart.sh trains it, with the options that both phases of the chapter share
    words = shlex.split(re.search(r"model=\((.*?)\)\n\n", script, re.DOTALL)[1])
    run(
        "fairseq-train",
        data / "bin",
        f"--user-dir={ROOT / 'fairseq_entmax'}",
        *words,
        *("--criterion=label_smoothed_cross_entropy", "--lr=0.005", "--total-num-update=2"),
        *("--max-update=2", "--num-workers=0", f"--save-dir={checkpoints}"),
    )
    short = script
    for updates, times, fewer in LENGTHS:
        assert script.count(f" {updates} ") == times
        short = short.replace(f" {updates} ", f" {fewer} ")
    short = re.sub("--warmup-updates [0-9]+", "", short)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["PATH"] = preloaded.path(f"{COMMANDS}{os.pathsep}{environment['PATH']}")
    how = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    result = subprocess.run(["bash", "-euc", short], check=False, **how)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return folder, result


def test_the_commands_keep_the_requested_heads_and_translate_the_test_set(walked):
    folder, result = walked
    counts = checkpoint_layers(str(folder / "gates-pruned.pt")).counts
    assert sum(map(sum, counts.values())) == 12
    assert len(hypotheses(result.stdout)) == SIZES["test"]
    assert "BLEU" in result.stdout


def test_every_name_that_the_chapter_defines_is_in_the_log(walked):
    table = CHAPTER[CHAPTER.index("**In the logs**") :].split("\n\n")[1]
    names = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert names == ["heads_open", "heads_expected", "heads_undecided", "l0_penalty", "l0_weight"]
    log = (walked[1].stdout + walked[1].stderr).splitlines()
    last = [line for line in log if " valid on " in line and "heads_open" in line][-1]
    shown = {name: float(value) for name, value in re.findall(r"\| (\w+) ([\d.-]+)", last)}
    assert set(names) <= set(shown)
    assert [shown[name] for name in names[:3]] == [12, 12, 0]
