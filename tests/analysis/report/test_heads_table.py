"""The table of heads as CSV and as LaTeX."""

import csv
import io
import json
import re
import shutil
import subprocess

import pytest

from fairseq_entmax.analysis.report.ablation_table import Ablation
from fairseq_entmax.analysis.report.catalogue import chosen
from fairseq_entmax.analysis.report.figures import drawables
from fairseq_entmax.analysis.report.heads_table import escaped, heads_csv, heads_latex
from fairseq_entmax.head_names import Head
from tests.analysis.report.page_actions import head_of
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.report.test_page import run

NAME = r"100%_of {α} & $x^2$ #1 ~\ <a>"


@pytest.fixture(scope="module")
def analysis():
    analysis = synthetic_analysis(models=2, layers=2, heads=3, sentences=0)
    analysis["models"][1]["name"] = NAME
    head_of(analysis, 1, "cross", 1, 2)["relevance"] = None
    return analysis


def cells(line):
    """Of a row of a tabular: an ampersand that is escaped parts nothing."""
    return [cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix(r"\\"))]


def test_a_csv_has_a_line_for_each_head_and_the_numbers_of_the_analysis(analysis):
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


def test_a_latex_table_has_as_many_cells_in_each_row_as_columns_and_the_rules_of_booktabs(
    analysis,
):
    lines = heads_latex(analysis).splitlines()
    columns = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", lines[1])[1])
    rows = [line for line in lines if line.endswith(r"\\")]
    assert len(rows) == 1 + 2 * 3 * 2 * 3
    assert {len(cells(row)) for row in rows} == {columns}
    rules = [line for line in lines if line.endswith("rule")]
    assert rules == [r"\toprule", r"\midrule", r"\midrule", r"\bottomrule"]
    assert lines[-1] == r"\end{tabular}"


def test_a_number_that_a_head_lacks_is_a_dash(analysis):
    lines = heads_latex(analysis).splitlines()
    titles = cells(lines[3])
    (row,) = [
        one for one in map(cells, lines)
        if one[0].startswith("100") and one[1:4] == ["cross", "1", "2"]
    ]  # fmt: skip
    assert row[titles.index("Relevance")] == "--"
    assert re.fullmatch(r"\d\.\d{3}", row[titles.index("Gradient")])


def test_what_latex_would_take_for_a_command_is_escaped():
    assert escaped(NAME) == (
        r"100\%\_of \{$\alpha$\} \& \$x\textasciicircum{}2\$ \#1 "
        r"\textasciitilde{}\textbackslash{} $<$a$>$"
    )


@pytest.mark.parametrize("name", ["[a] model", "*best*", " [a]"])
def test_no_row_begins_with_what_latex_takes_for_an_argument(analysis, name):
    assert escaped(name) == "{}" + name
    renamed = {**analysis, "models": [{**analysis["models"][0], "name": name}]}
    rows = [line for line in heads_latex(renamed).splitlines() if name in line]
    assert len(rows) == 3 * 2 * 3
    assert all(row.startswith("{}") for row in rows)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_latex_compiles_the_table(analysis, tmp_path):
    text = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{heads_latex(analysis)}\end{{document}}"
    (tmp_path / "paper.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.fixture
def folder(tmp_path, analysis, monkeypatch):
    (tmp_path / "analysis.json").write_text(json.dumps(analysis), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_writes_both_tables_and_chosen_figures(folder, analysis, capsys):
    run(
        "analysis.json", "--output", "r.html", "--heads-table", "heads.csv", "heads.tex",
        "--figures", "f", "--formats", "svg", "--figure-names", "grid_density",
    )  # fmt: skip
    assert (folder / "heads.csv").read_text(encoding="utf-8") == heads_csv(analysis)
    assert (folder / "heads.tex").read_text(encoding="utf-8") == heads_latex(analysis)
    assert [path.name for path in (folder / "f").iterdir()] == ["grid_density.svg"]
    said = capsys.readouterr().out
    assert "f: 1 figure as svg\n" in said
    assert "heads.tex: a row for each of 36 heads" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--heads-table", "heads.txt"], r"--heads-table got 'heads\.txt': .* \.csv or \.tex"),
        (["--heads-table", "no/heads.csv"], "--heads-table got 'no/heads.csv': there is no folder"),
        (["--heads-table", "r.html"], "give a name that ends in .csv or .tex"),
        (["--heads-table", ""], "--heads-table got ''"),
        (["--figure-names", "grid_density"], "--figure-names needs --figures DIR"),
        (["--figures", "f", "--figure-names", "x"], "--figure-names got 'x': 'x' fits no figure"),
        (["--heads-table", "a.csv", "./a.csv"], r"--heads-table got '\./a\.csv' twice"),
    ],
)
def test_wrong_options_are_refused_and_nothing_is_written(folder, options, message):
    with pytest.raises((ValueError, OSError), match=message):
        run("analysis.json", "--output", "r.html", *options)
    assert [path.name for path in folder.iterdir()] == ["analysis.json"]


def test_what_ablations_measured_is_in_the_tables_and_has_a_grid(analysis):
    place = Head("cross", 1, 2)
    removed = Ablation("softmax", {"loss": {place: {"change": -0.25, "p": 0.5, "p_holm": 1.0}}})
    table = csv.DictReader(io.StringIO(heads_csv(analysis, [removed])))
    known = [row for row in table if row["ablation-loss"]]
    assert [(row["model"], row["head"], row["ablation-loss"]) for row in known] == [
        ("softmax", "2", "-0.25")
    ]
    assert "$-$0.250" in heads_latex(analysis, [removed])
    (grid,) = chosen(drawables(analysis, [], [removed]), "grid_ablation_loss")
    rows = grid.draw().for_paper()["data"]["values"]
    assert [row["value"] for row in rows if row["value"] is not None] == [-0.25]
