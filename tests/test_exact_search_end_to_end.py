"""fairseq's commands on models whose output is sparse, and beside them on stock models."""

import math
import os
import re
import subprocess
from types import SimpleNamespace

import pytest

from fairseq_entmax.models import EntmaxTransformerModel
from tests.commands import COMMANDS, SIZES, generate, hypotheses, run, train

pytestmark = pytest.mark.slow

# Gives probabilities by 1.5-entmax instead of softmax, sharply
SPARSE = """
import fairseq_entmax.models
from fairseq_entmax.mappings import entmax15


def get_normalized_probs(self, net_output, log_probs, sample=None):
    probs = entmax15(9 * net_output[0].float())
    return probs.log() if log_probs else probs


fairseq_entmax.models.EntmaxTransformerModel.get_normalized_probs = get_normalized_probs
"""
EXACT = re.compile(r"exact search: (\d+) of (\d+) sentences \(\d+\.\d%\)")


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sparse_output")
    (folder / "sparse").mkdir()
    (folder / "sparse" / "__init__.py").write_text(SPARSE, encoding="utf-8")
    train(data, folder / "ours", "--max-update=30")
    train(data, folder / "stock", "--max-update=8", arch="transformer")
    paths = {name: folder / name / "checkpoint_last.pt" for name in ("ours", "stock")}
    return SimpleNamespace(user_dir=f"--user-dir={folder / 'sparse'}", **paths)


@pytest.mark.parametrize(
    "options",
    [
        ["--nbest=3"],
        ["--beam=40", "--nbest=40", "--print-alignment", "--max-len-b=4"],
        ["--prefix-size=3", "--min-len=4", "--max-len-b=6"],
        ["--sampling", "--sampling-topp=0.8", "--nbest=3"],
        ["--beam=4", "--diverse-beam-groups=2", "--nbest=4"],
        ["--task=entmax_summarization", "--length-penalty=wu", "--coverage-penalty=2"],
    ],
    ids=" ".join,
)
def test_generate_ends_well_and_says_how_many_searches_were_exact(data, trained, options):
    result = generate(data, trained.ours, trained.user_dir, "--max-len-b=12", *options)
    counts = EXACT.findall(result.stdout + result.stderr)
    assert len(counts) == 1
    assert int(counts[0][1]) == SIZES["test"]
    assert len(hypotheses(result.stdout)) == SIZES["test"]
    scores = [line.split("\t")[1] for line in result.stdout.splitlines() if line[:2] == "H-"]
    assert all(math.isfinite(float(score)) for score in scores)
    assert "Generate test with beam=" in result.stdout


def test_interactive_says_it_too(data, trained):
    lines = (data / "test.bpe.es").read_text(encoding="utf-8").splitlines(keepends=True)[:3]
    options = [trained.user_dir, f"--path={trained.ours}", "--beam=3", "--max-len-b=8"]
    result = run("fairseq-interactive", data / "bin", *options, stdin="".join(lines))
    assert len(hypotheses(result.stdout)) == 3
    assert [int(total) for _, total in EXACT.findall(result.stdout + result.stderr)] == [3]


def test_python_translates_where_nothing_can_end(data, trained):
    hub = EntmaxTransformerModel.from_pretrained(
        str(trained.ours.parent), "checkpoint_last.pt", data_name_or_path=str(data / "bin")
    )
    line = (data / "test.bpe.es").read_text(encoding="utf-8").splitlines()[0]
    (best, *_) = hub.generate(hub.binarize(line), beam=3, max_len_b=2)
    assert best.keys() >= {"exact_search", "unfinished"}
    assert not best["exact_search"]


def test_a_stock_model_is_generated_with_as_without_this_package(data, trained):
    arguments = [f"--path={trained.stock}", "--beam=3", "--max-len-b=12", "--nbest=2", "--cpu"]
    command = [COMMANDS / "fairseq-generate", data / "bin", *arguments]
    # Without this package, torch itself would refuse fairseq's checkpoint
    environment = {**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "OMP_NUM_THREADS": "1"}
    stock = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    beside = generate(data, trained.stock, "--max-len-b=12", "--nbest=2")
    lines = [
        sorted(line for line in output.splitlines() if re.match(r"[STHDP]-\d", line))
        for output in (stock.stdout, beside.stdout)
    ]
    assert lines[0] == lines[1]
    assert len(lines[0]) == SIZES["test"] * 8
    assert "exact search" not in beside.stdout + beside.stderr
