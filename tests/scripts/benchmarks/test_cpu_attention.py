"""The benchmark of attention on a CPU: what it compares is right, and it prints what it measures."""

import json
import sys

import pytest
import torch

from tests.kernels.native.support import needs_compiler
from tests.scripts.benchmarks.support import load

pytestmark = needs_compiler


@pytest.fixture
def benchmark(monkeypatch):
    return load("cpu_attention", monkeypatch)


@pytest.fixture
def threads():
    number = torch.get_num_threads()
    yield
    torch.set_num_threads(number)


def layer(queries=6, keys=9, causal=False, padding=None):
    """An attention as dump_attention.py writes it."""
    torch.manual_seed(1)
    shapes = {"query": (2, 3, queries, 8), "key": (2, 3, keys, 8), "value": (2, 3, keys, 8)}
    return {
        "name": "decoder.layers.0.encoder_attn",
        **{name: torch.randn(shape) for name, shape in shapes.items()},
        "epsilon": torch.tensor([0.3, 0.5, 0.7]),
        "scale": 8**-0.5,
        "padding": padding,
        "causal": causal,
    }


@pytest.mark.parametrize("queries", ["independent", "smooth"])
def test_what_is_measured_is_attention_and_sparse(benchmark, queries):
    case = benchmark.drawn("2x2x40x16", 3.0, queries, 1.6)
    row = benchmark.measure(case, 2, 0.0)
    assert row["error"] <= 1e-5
    assert 0 < row["density"] < 0.5
    assert row["both_ratio"]["sdpa"] == 1.0
    assert row["rounds"] == 2
    assert all(row["both_ms"][name] > 0 for name in ("here", "sdpa", "bmm", "apart"))
    # A key and a probability for each of the support, and where the rows begin
    assert row["kept"]["here"] == pytest.approx(2 * row["density"] + 2 / 40, abs=0.05)
    assert row["kept"]["bmm"] >= 1


def test_smooth_queries_have_the_spread_and_resemble_their_neighbours(benchmark):
    query = benchmark.drawn("4x4x256x16", 1.5, "smooth", 1.5).query
    assert query.std().item() == pytest.approx(1.5, rel=0.1)
    one, next_one = query[:, :, :-1].flatten(), query[:, :, 1:].flatten()
    correlation = torch.corrcoef(torch.stack([one, next_one]))[0, 1].item()
    assert correlation == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_softmax_by_torch_and_by_products_agree_under_masks(benchmark, tmp_path, causal, is_padded):
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[0, 6:] = True
    own = layer(9, 9, causal, padding if is_padded else None)
    torch.save([own], tmp_path / "model.pt")
    (case,) = benchmark.dumped(tmp_path / "model.pt")
    runs = benchmark.contenders(case)
    inputs = (case.query, case.key, case.value)
    torch.testing.assert_close(runs["sdpa"][0](*inputs), runs["bmm"][0](*inputs))
    torch.testing.assert_close(runs["here"][0](*inputs), runs["apart"][0](*inputs))
    assert benchmark.measure(case, 1, 0.0)["error"] <= 1e-5


def test_a_dumped_attention_is_told_by_its_name_and_shape(benchmark, tmp_path):
    torch.save([layer()], tmp_path / "model.pt")
    (case,) = benchmark.dumped(tmp_path / "model.pt")
    assert case.about["shape"] == "2x3x6:9x8"
    assert case.about["queries"] == "decoder.layers.0.encoder_attn"
    assert case.about["alpha"] == 1.5


@pytest.mark.parametrize("content", [{}, [], [{"query": torch.zeros(1)}], [2]])
def test_a_file_without_attentions_is_named(benchmark, tmp_path, content):
    torch.save(content, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"model\.pt holds no attentions: write one by"):
        benchmark.dumped(tmp_path / "model.pt")


def test_the_worst_row_of_a_kind_is_named(benchmark):
    rows = [
        {
            "shape": f"1x1x{keys}x8",
            "queries": "smooth",
            "spread": 1.5,
            "threads": 1,
            "keys": keys,
            "density": density,
            **{f"{part}_ratio": {"here": ratio} for part in ("forward", "both")},
            **{f"{part}_to_apart": ratio / 2 for part in ("forward", "both")},
        }
        for keys, density, ratio in ((64, 0.2, 0.8), (512, 0.03, 0.4), (512, 0.2, 0.9))
    ]
    text = benchmark.worst(rows)
    assert "density below 5 % | 1x1x512x8, smooth, spread 1.5, density 0.030" in text
    assert "0.40 of sdpa" in text
    assert "0.45 of apart" in text


def test_it_prints_and_writes_every_shape(benchmark, monkeypatch, capsys, tmp_path, threads):
    file = tmp_path / "rows.json"
    words = ["cpu_attention.py", "--shapes", "1x1x8x8", "--rounds", "1", "--threads", "1,2"]
    words += ["--queries", "smooth"]
    monkeypatch.setattr(sys, "argv", [*words, "--spreads", "1", "2", "--json", str(file)])
    benchmark.main()
    said = capsys.readouterr().out
    assert said.count("| 1x1x8x8 |") == 4 + 2  # a line for a case, and its threads side by side
    assert "forward, 1 thread(s) | forward, 2 thread(s)" in said
    report = json.loads(file.read_text())
    assert [(row["threads"], row["spread"]) for row in report["results"]] == [
        (1, 1.0),
        (1, 2.0),
        (2, 1.0),
        (2, 2.0),
    ]
    assert report["settings"]["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shapes", "8x8"], "--shapes got '8x8': give SENTENCESxHEADSxTOKENSxSIZE"),
        (["--threads", "0"], "got '0': give whole numbers from 1 up"),
        (["--dumped", "none.pt"], "--dumped got 'none.pt': there is no such file"),
        (["--dumped", __file__], "test_cpu_attention.py holds no attentions: write one by"),
        (["--rounds", "0"], "--rounds must be 1 or more"),
        (["--spreads", "1", "nan"], "--spreads must be a number above 0, not nan"),
        (["--alpha", "3"], "--alpha must be above 1 and at most 2, not 3"),
        (["--alpha", "nan"], "--alpha must be above 1 and at most 2, not nan"),
    ],
)
def test_a_wrong_option_is_named(benchmark, monkeypatch, capsys, words, message):
    monkeypatch.setattr(sys, "argv", ["cpu_attention.py", *words])
    with pytest.raises(SystemExit):
        benchmark.main()
    assert message in capsys.readouterr().err
