"""The figures of how cost grows: from the numbers alone, small, and with all contenders."""

import json
import struct
import sys
import zlib

import pytest
import torch

from tests.kernels.native.support import needs_compiler
from tests.scripts.benchmarks.support import load

FIGURES = ("length", "density", "threads")


@pytest.fixture
def growth(monkeypatch):
    return load("growth", monkeypatch)


def row(figure, x, varied=None):
    """A row as cpu_attention.measure gives it, in which attention here takes x milliseconds."""
    times = {"here": float(x), "sdpa": 2.0 * x, "bmm": 3.0 * x, "apart": 4.0 * x}
    return {
        "figure": figure,
        "varied": varied or figure,
        "shape": "1x2x16x8",
        "alpha": 1.4,
        "keys": 8,
        "density": 0.5,
        "threads": 1,
        {"length": "keys"}.get(figure, figure): x,
        **{f"{part}_ms": times for part in ("forward", "both")},
        **{
            f"{part}_ratio": {name: ms / times["sdpa"] for name, ms in times.items()}
            for part in ("forward", "both")
        },
    }


def pixels(picture):
    """Width, height and the uncompressed data of a PNG."""
    place, data = 8, b""
    while place < len(picture):
        (length,) = struct.unpack_from(">I", picture, place)
        kind, content = picture[place + 4 : place + 8], picture[place + 8 : place + 8 + length]
        (check,) = struct.unpack_from(">I", picture, place + 8 + length)
        assert check == zlib.crc32(kind + content)
        if kind == b"IHDR":
            size = struct.unpack_from(">II", content)
        data += content if kind == b"IDAT" else b""
        place += length + 12
    assert kind == b"IEND"
    return size, zlib.decompress(data)


def test_each_contender_has_a_point_for_each_row_and_pass(growth):
    rows = [row("length", 64), row("length", 128), row("threads", 1)]
    points = growth.points(rows, "length")
    assert len(points) == 2 * 2 * 3
    (one,) = (
        point
        for point in points
        if point["x"] == 128 and point["pass"] == "forward" and "two products" in point["attention"]
    )
    assert one["ms"] == 3 * 128


def test_rows_of_other_alphas_are_a_line_of_their_own(growth):
    points = growth.points([row("density", 0.1), row("density", 0.2, "alpha")], "density")
    assert {point["attention"] for point in points if point["x"] == 0.2} == {growth.BY_ALPHA}


def test_a_smaller_picture_has_the_same_pixels(growth):
    vl_convert = pytest.importorskip("vl_convert")
    spec = growth.specification([row("length", 64), row("length", 128)], "length")
    picture = vl_convert.vegalite_to_png(spec, scale=1)
    small = growth.smaller(picture)
    assert len(small) < len(picture)
    assert pixels(small) == pixels(picture)


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_is_a_small_picture(growth, figure):
    pytest.importorskip("vl_convert")
    places = [0.05, 0.4] if figure == "density" else [1, 2, 4]
    picture = growth.png(growth.specification([row(figure, x) for x in places], figure))
    (width, height), _ = pixels(picture)
    assert width > height > 300
    assert len(picture) < 100_000


def test_figures_are_drawn_from_the_numbers_without_measuring(
    growth, monkeypatch, capsys, tmp_path
):
    pytest.importorskip("vl_convert")
    rows = [row(figure, x) for figure in FIGURES for x in (1, 2)]
    settings = {
        "processor": "one",
        "vectors": "AVX2",
        "fairseq_entmax": "0",
        "torch": "2",
        "date": "2026-01-02",
    }
    report = json.dumps({"settings": settings, "results": rows})
    (tmp_path / "growth.json").write_text(report, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["growth.py", "--output", str(tmp_path)])
    monkeypatch.setattr(growth, "measured", None)
    growth.main()
    assert {path.name for path in tmp_path.glob("*.png")} == {f"growth_{f}.png" for f in FIGURES}
    assert "| threads | 1x2x16x8 | 1.4 | 2 |" in capsys.readouterr().out
    assert (tmp_path / "growth.json").read_text(encoding="utf-8") == report


def test_without_numbers_it_says_how_to_measure(growth, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["growth.py", "--output", str(tmp_path)])
    with pytest.raises(SystemExit):
        growth.main()
    assert "there is no growth.json, measure it by --run" in capsys.readouterr().err


@needs_compiler
def test_all_that_is_planned_is_measured_and_threads_are_put_back(growth):
    before = torch.get_num_threads()
    rows = list(growth.measured("independent", True, 1, 0.0))
    assert torch.get_num_threads() == before
    assert [one["figure"] for one in rows] == ["length"] * 2 + ["density"] * 3 + ["threads"] * 2
    assert [one["threads"] for one in rows if one["figure"] == "threads"] == [1, 2]
    assert [one["alpha"] for one in rows if one["varied"] == "alpha"] == [2.0]


@needs_compiler
def test_the_points_of_a_figure_take_turns(growth, monkeypatch):
    seen = []

    def one_round(runs, case, turn):
        seen.append((turn, case.about["spread"]))
        return {name: {"forward": 1.0, "both": 2.0} for name in runs}

    monkeypatch.setattr(growth, "one_round", one_round)
    settings = [{"shape": "1x1x8x8", "spread": spread, "threads": 1} for spread in (1.0, 2.0)]
    rows = list(growth.side_by_side("density", settings, "independent", 2, 9.0))
    assert seen == [(turn, spread) for turn in (0, 1, 2) for spread in (1.0, 2.0)]
    assert [one["rounds"] for one in rows] == [2, 2]
    assert rows[0]["both_ms"]["here"] == 2000
