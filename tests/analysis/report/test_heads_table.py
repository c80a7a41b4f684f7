"""The command's CSV table of heads, and figures chosen by name."""

import csv
import io
import json

import pytest

from fairseq_entmax.analysis.report.figures import chosen, drawables
from fairseq_entmax.analysis.report.payload import heads_csv
from tests.analysis.report.page_actions import head_of
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.report.test_agreement import ablated
from tests.analysis.report.test_page import run

NAME = 'a "model", with α'


@pytest.fixture(scope="module")
def analysis():
    analysis = synthetic_analysis(models=2, layers=2, heads=3, sentences=0)
    analysis["models"][1]["name"] = NAME
    head_of(analysis, 1, "cross", 1, 2)["relevance"] = None
    return analysis


def test_the_csv_has_a_line_per_head_with_the_analysis_numbers(analysis):
    table = list(csv.DictReader(io.StringIO(heads_csv(analysis))))
    assert len(table) == 2 * 3 * 2 * 3
    (row,) = [
        row for row in table
        if (row["model"], row["attention"], row["layer"], row["head"]) == (NAME, "cross", "1", "2")
    ]  # fmt: skip
    head = head_of(analysis, 1, "cross", 1, 2)
    for name in ("density", "entropy", "confidence", "gradient"):
        assert float(row[name]) == pytest.approx(head[name], rel=1e-8)
    assert row["relevance"] == ""
    assert not [name for name in row if "@" in name]


def test_the_command_writes_the_table_and_chosen_figures(analysis, tmp_path, monkeypatch, capsys):
    (tmp_path / "analysis.json").write_text(json.dumps(analysis), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run(
        "analysis.json", "--output", "r.html", "--heads-table", "heads.csv",
        "--figures", "f", "--formats", "svg", "--figure-names", "grid_density",
    )  # fmt: skip
    assert (tmp_path / "heads.csv").read_text(encoding="utf-8") == heads_csv(analysis)
    assert [path.name for path in (tmp_path / "f").iterdir()] == ["grid_density.svg"]
    output = capsys.readouterr().out
    assert "f: 1 figure as svg\n" in output
    assert "heads.csv: a row for each of 36 heads" in output


def test_ablation_results_are_in_the_table_and_have_a_grid(analysis):
    with_loss = ablated(analysis, lambda head: -0.25 if head["head"] == 2 else 0.5)
    table = csv.DictReader(io.StringIO(heads_csv(with_loss)))
    known = {row["head"]: row["ablation-loss"] for row in table if row["ablation-loss"]}
    assert known == {"0": "0.5", "1": "0.5", "2": "-0.25"}
    (grid,) = chosen(drawables(with_loss, []), "grid_ablation_loss")
    rows = [row for row in grid.draw().for_paper()["datasets"]["rows"] if row["value"] is not None]
    assert {row["model"] for row in rows} == {"softmax"}
    assert {row["text"] for row in rows if row["head"] == 2} == {"−0.25", "−0.25*"}
    assert [row["attention"] for row in rows if row["text"].endswith("*")] == ["cross"]
