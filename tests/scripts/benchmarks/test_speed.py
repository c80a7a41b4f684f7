"""The benchmarks of speed: what they print and write, not how fast anything is."""

import json
import sys

import pytest
import torch

from tests.kernels.native.support import needs_compiler
from tests.scripts.benchmarks.support import load, run

ALL = ["stock fairseq", "softmax", "entmax15", "entmax", "entmax_bisect"]

OTHER = ["softmax --cross-attn-mapping sparsemax"]


@needs_compiler
@pytest.mark.slow
def test_every_mapping_is_timed_and_its_memory_taken(tmp_path):
    out = tmp_path / "mapping.json"
    result = run("mapping", "--shapes", "64x8", "32x30", "--repeats", 1, "--json", out)
    assert result.returncode == 0, result.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["results"]
    assert [(row["rows"], row["keys"]) for row in rows] == [(64, 8)] * 7 + [(32, 30)] * 7
    for row in rows:
        assert row["forward_ms"] > 0
        assert row["backward_ms"] > 0
        assert f"{row['mapping']:<28}" in result.stdout
    memory = {row["mapping"]: row["peak_memory"] for row in rows[7:]}
    assert memory["torch.softmax"] == pytest.approx(2, abs=0.1)  # probabilities and gradient
    assert memory["entmax.entmax_bisect"] > 4


@needs_compiler
@pytest.mark.slow
def test_every_mapping_with_structure_is_timed_beside_its_peers(tmp_path):
    out = tmp_path / "structured.json"
    result = run("structured", "--shapes", "64x8", "--repeats", 1, "--json", out)
    assert result.returncode == 0, result.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["results"]
    names = [row["mapping"] for row in rows]
    for name in ("fusedmax (native)", "fusedmax (Condat, scalar C)", "torch.softmax"):
        assert name in names
        assert name in result.stdout
    assert all(row["forward_ms"] > 0 for row in rows)


@needs_compiler
def test_the_least_ratio_of_drawn_alphas_is_printed(tmp_path):
    out = tmp_path / "drawn.json"
    sizes = ["--shapes", "64x8", "32x30", "--repeats", 2, "--threads", 2]
    result = run("mapping", "--drawn", *sizes, "--json", out)
    assert result.returncode == 0, result.stderr
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["settings"]["threads"] == 2
    ratios = [row["ratio"] for row in report["results"]]
    least = result.stdout.splitlines()[-1].split()
    assert least[:3] == ["least", "of", "all"]
    for place, peer in ((-2, "entmax.entmax_bisect"), (-1, "entmax.entmax15")):
        assert float(least[place]) == pytest.approx(min(one[peer] for one in ratios), abs=0.01)


def test_what_is_timed_with_drawn_alphas_agrees(monkeypatch):
    mapping = load("mapping", monkeypatch)
    torch.manual_seed(0)
    alpha = (1.0 + torch.rand(4, 1, 1)).requires_grad_()
    runs, scores = mapping.contenders(alpha), torch.randn(4, 5, 12)
    probs = runs[mapping.learned("cpu")](scores)
    expected = runs["entmax.entmax_bisect"](scores)
    torch.testing.assert_close(probs, expected, atol=1e-4, rtol=1e-3)


def test_growth_is_the_exponent_of_the_cost(monkeypatch):
    mapping = load("mapping", monkeypatch)
    assert mapping.exponent([1, 2, 4], [3.0, 6.0, 12.0]) == pytest.approx(1)
    assert mapping.exponent([10, 100], [7.0, 700.0]) == pytest.approx(2)
    rows = [
        {"mapping": "a", "rows": rows, "keys": keys, "forward_ms": rows * 1e-3, "backward_ms": 0.0}
        for rows, keys in (
            map(int, shape.split("x")) for shape in mapping.BY_LENGTH + mapping.BY_ROWS
        )
    ]
    (row,) = mapping.growth(rows)
    assert row["exponent_of_length"] == pytest.approx(-1)  # 2^20 scores: rows fall as keys rise
    assert row["exponent_of_rows"] == pytest.approx(1)


@pytest.mark.slow
def test_every_model_trains_on_the_same_batches(data, tmp_path):
    out = tmp_path / "training.json"
    sizes = ["--rounds", 2, "--updates", 1, "--max-tokens", 600]
    mappings = [word for spec in (*ALL[1:-1], *OTHER) for word in ("--mapping", spec)]
    result = run("training", data / "bin", *sizes, "--json", out, "--decoder-layers", 1, *mappings)
    assert result.returncode == 0, result.stderr[-2000:]
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["settings"]["fairseq_options"] == ["--decoder-layers", "1"]
    assert [row["model"] for row in report["models"]] == [*ALL[:-1], *OTHER, ALL[-1]]
    for row in report["models"]:
        assert len(row["speeds"]) == 2
        assert f"{row['model']:<14}" in result.stdout
    assert report["models"][0]["ratio"] == 1


@pytest.mark.slow
def test_models_train_on_random_words_of_a_length(tmp_path):
    out = tmp_path / "training.json"
    sizes = ["--rounds", 2, "--updates", 1, "--max-tokens", 80, "--query-scale", 9, "--threads", 1]
    words = ["random:40x20", "--mapping", "entmax15", "--no-bisect", "--decoder-layers", 1]
    result = run("training", *words, *sizes, "--json", out)
    assert result.returncode == 0, result.stderr[-2000:]
    stock, own = json.loads(out.read_text(encoding="utf-8"))["models"]
    assert stock["keys_with_weight"] == {}
    assert 1 <= own["keys_with_weight"]["encoder"] < 40
    assert own["keys_with_weight"]["decoder"] < 20
    assert f"encoder {own['keys_with_weight']['encoder']:.0f}" in result.stdout


@pytest.mark.slow
def test_every_model_translates(tmp_path):
    out = tmp_path / "generation.json"
    sizes = ["--sentences", 2, "--batch", 2, "--beam", 2, "--repeats", 1]
    result = run("generation", *sizes, "--json", out)
    assert result.returncode == 0, result.stderr[-2000:]
    rows = json.loads(out.read_text(encoding="utf-8"))["models"]
    assert [row["model"] for row in rows] == ALL
    assert rows[0]["ratio"] == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_copying_without_a_gpu_says_that_it_needs_one():
    result = run("copying", "--device", "cuda")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith(
        "--device cuda needs a GPU that torch can use, and there is none here"
    )


class Stopped(Exception):
    """What ends a benchmark in the middle."""


@pytest.fixture
def writes_two(monkeypatch):
    """Ends a benchmark after two files, which are kept."""
    written = []

    def write(path, content):
        written.append(json.loads(json.dumps(content, default=str)))
        if len(written) == 2:
            raise Stopped

    def of(name, *words):
        benchmark = load(name, monkeypatch)
        monkeypatch.setattr(benchmark, "write_json", write)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, words), "--json", "x.json"])
        with pytest.raises(Stopped):
            benchmark.main()
        return written

    return of


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mapping", ["--shapes", "64x8", "32x9", "--repeats", 1]),
        ("mapping", ["--drawn", "--shapes", "64x8", "32x9", "--repeats", 1]),
        ("structured", ["--shapes", "64x8", "32x9", "--repeats", 1]),
        ("losses", ["--rows", 8, "--keys", 30, "--rounds", 1, "--alphas", 1.5]),
    ],
)
def test_results_are_written_after_each_case(name, words, writes_two, monkeypatch):
    first, second = (report["results"] for report in writes_two(name, *words))
    assert 0 < len(first) < len(second)
    assert second[: len(first)] == first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "field"),
    [
        (
            "training",
            ["random:12x8", "--rounds", 2, "--updates", 1, "--max-tokens", 24],
            "speeds",
        ),
        ("generation", ["--sentences", 2, "--batch", 2, "--beam", 2, "--repeats", 2], "seconds"),
    ],
)
def test_results_are_written_after_each_round(name, words, field, writes_two):
    first, second = (report["models"] for report in writes_two(name, *words, "--no-bisect"))
    assert [len(row[field]) for row in first] == [1] * len(ALL[:-1])
    assert [len(row[field]) for row in second] == [2] * len(ALL[:-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("mapping", ["--shapes", "12"], "--shapes got '12': give ROWSxKEYS"),
        ("mapping", ["--repeats", 0], "--repeats must be 1 or more"),
        ("training", ["nowhere"], "DATA got 'nowhere': there is no such folder"),
        ("training", [".", "--rounds", 0], "must be 1 or more"),
        ("training", ["random:400"], "DATA got '400': give random:SOURCExTARGET"),
        ("training", ["random:12x8", "--max-tokens", 4], "a sentence of random:12x8 has 12"),
        ("training", [".", "--bf16"], "--bf16 needs --cuda"),
        ("mapping", ["--growth", "--drawn"], "--drawn and --growth are two measurements"),
        ("generation", ["--beam", 0], "must be 1 or more"),
        ("generation", ["--fp16"], "--fp16 needs --device cuda"),
        ("copying", ["--rounds", 0], "--rounds must be 1 or more, not 0"),
        ("structured", ["--p", 3], "--p must be above 1 and at most 2, not 3"),
    ],
)
def test_a_wrong_option_is_named(name, arguments, message):
    result = run(name, *arguments)
    assert result.returncode == 2
    assert message in result.stderr
