"""The commands of docs/pipeline.md, as printed, lead from two text files to BLEU and a report."""

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import preloaded
from tests.examples.miniatures import corpus, lines

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
PAGES = ("heads/look.html", "compare/report.html")
EVERY = 40  # one of 40 verses
# Options of a trial that follow the page's; fairseq takes the last of two
TRIAL = {
    "fairseq-train": '"$@" --cpu --max-update 4',
    "fairseq-generate": '"$@" --cpu --max-len-a 0 --max-len-b 8',
    "fairseq-entmax": '"$@" $(case $1 in look) echo --cpu --min-len 2 --max-len-b 4 ;; esac)',
}


def command(name: str, block: str) -> str:
    """The only command of a block with this name, its lines joined."""
    (found,) = re.findall(rf"(?m)^{name} (?:.*\\\n)*.*", block)
    return " ".join(found.replace("\\\n", " ").split())


@pytest.mark.parametrize("name", ["fairseq-train", "fairseq-generate"])
def test_the_baseline_differs_only_in_architecture_and_folder(name):
    (stock,) = [block for block in BLOCKS if "--arch transformer" in block]
    stock = stock.replace("runs/stock", "runs/entmax")
    ours = "".join(block for block in BLOCKS if "runs/stock" not in block)
    words = [command(name, text).split() for text in (ours, stock)]
    changed = {line for line in difflib.ndiff(*words) if line[0] in "+-"}
    expected = {"- entmax_transformer", "- --attn-mapping", "- entmax", "+ transformer"}
    expected |= {"- --alpha-warmup-updates", "- 2250"}
    assert changed == (expected if name == "fairseq-train" else set())


def test_every_command_that_reads_data_includes_all_sentences():
    commands = re.findall(r"(?m)^fairseq-(?:train|generate) (?:.*\\\n)*.*", "\n".join(BLOCKS))
    assert len(commands) == 4
    assert all("--required-batch-size-multiple 1 " in found for found in commands)


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """A folder in which the page's commands ran one after the other, and their output."""
    folder = tmp_path_factory.mktemp("pipeline")
    wrappers = folder / "bin"
    wrappers.mkdir()
    path = preloaded.path(PATH)
    for name, arguments in TRIAL.items():
        real = shutil.which(name, path=path)
        (wrappers / name).write_text(f"#!/bin/sh\nexec {real} {arguments}\n")
        (wrappers / name).chmod(0o755)
    for side, language in enumerate(("es", "en")):
        text = "".join(f"{verse[side]}\n" for verse in corpus()[::EVERY])
        (folder / f"corpus.{language}").write_text(text, encoding="utf-8")
    return folder, run("\n".join(BLOCKS), folder, folder).stdout


def run(script, folder, working):
    """Run a script of the pages in a working folder, with the options of a trial."""
    path = f"{folder / 'bin'}:{preloaded.path(PATH)}"
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=working,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result


def test_the_commands_end_with_scores_of_both_models_and_a_report(walked):
    folder, printed = walked
    assert re.search(r"BLEU\|nrefs:1\|\S+ = [0-9.]+ ", printed)
    assert "alpha of each head" in printed
    assert "Baseline: runs/stock/test.hyp" in printed
    assert re.search(
        r"note: segmented by .*--sentencepiece-model \S*bpe/model\.model", " ".join(printed.split())
    )
    pages = [(folder / name).read_text(encoding="utf-8") for name in PAGES]
    titles = [re.search("<title>Attention heads of (.*)</title>", page)[1] for page in pages]
    assert titles == ["entmax on es-en sentences of your own", "stock, entmax on es-en test"]
    for name in ("entmax", "stock"):
        assert len(lines(folder / "runs" / name / "test.hyp")) == len(
            lines(folder / "text/test.en")
        )
    analysis = json.loads((folder / "compare" / "analysis.json").read_text(encoding="utf-8"))
    assert [model["name"] for model in analysis["models"]] == ["stock", "entmax"]


def test_splits_are_disjoint_and_subwords_cover_every_line(walked):
    folder, _ = walked
    for language in ("es", "en"):
        names = [f"{split}.{language}" for split in ("train", "valid", "test")]
        everything = [line for name in names for line in lines(folder / "text" / name)]
        assert len(set(everything)) == len(everything)
        for name in names:
            text, pieces = lines(folder / "text" / name), lines(folder / "bpe" / name)
            assert len(text) > 20
            assert ["".join(x.split()).replace("▁", " ").strip() for x in pieces] == [
                " ".join(x.split()) for x in text
            ]


# --- the command of the README ------------------------------------------------

README = (ROOT / "README.md").read_text(encoding="utf-8")
OTHER_OPTIONS = (
    "--source-lang es --target-lang en --encoder-embed-dim 32 --decoder-embed-dim 32 --encoder-layers 1 "
    "--decoder-layers 1 --criterion label_smoothed_cross_entropy --optimizer adam --lr 0.0005 "
    "--max-tokens 1000 --max-update 3"
)


def test_the_readmes_command_trains(walked, tmp_path):
    """It runs on the data that the chapter's commands made, with small layers."""
    folder, _ = walked
    (block,) = [
        x for x in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "fairseq-train" in x
    ]
    shutil.copytree(folder / "data-bin", tmp_path / "data-bin")
    run(block.replace("…your other options", OTHER_OPTIONS), folder, tmp_path)
    assert (tmp_path / "checkpoints" / "checkpoint_last.pt").exists()
