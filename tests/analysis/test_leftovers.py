"""What killed commands left beside their outputs is gone after the next, and nothing else is."""

import json

import pytest

from fairseq_entmax import cli
from tests.analysis.report.synthetic import synthetic_analysis


def command(name, tiny, folder):
    """The arguments of a command that writes, and the files that it writes."""
    data = [str(tiny / "bin"), f"--path={tiny / 'plain.pt'}", "--cpu", "--num-workers=0"]
    output = f"--output={folder}"
    if name == "analyze":
        return [name, *data, output, "--measures=density"], ["analysis.json"]
    if name == "ablate":
        more = ["--scores=loss", "--heads=cross:0.1", "--log-format=none"]
        return [name, *data, output, *more], ["ablation.json", "ablation.tsv"]
    if name == "prune":
        heads = ["--heads=cross:0.1", f"--output={folder / 'small.pt'}"]
        return [name, str(tiny / "plain.pt"), *heads], ["small.pt"]
    analysis = synthetic_analysis(models=1, layers=1, heads=2, sentences=1, length=4)
    (folder / "a.json").write_text(json.dumps(analysis))
    figures = [f"--figures={folder}", "--formats=svg"]
    report = f"--output={folder / 'r.html'}"
    return [name, str(folder / "a.json"), report, *figures], ["r.html", "diversity_by_layer.svg"]


@pytest.mark.parametrize("name", ["analyze", "ablate", "prune", "report"])
def test_the_next_run_removes_what_a_killed_one_left(name, tiny, tmp_path):
    arguments, files = command(name, tiny, tmp_path)
    for file in files:
        (tmp_path / f"{file}.tmp123").write_bytes(b"half")
    (tmp_path / "mine.tmp123").write_bytes(b"mine")
    assert cli.main(arguments) == 0
    left = {path.name for path in tmp_path.iterdir()}
    assert {name for name in left if ".tmp" in name} == {"mine.tmp123"}
    assert set(files) <= left
