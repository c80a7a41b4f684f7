"""Analyses that a record keeps, written out again for the report."""

from __future__ import annotations

import json

import pytest
from claims.__main__ import main
from claims.kept import joined

from tests.examples.tools.claims import synthetic

ONE, OTHER = "bible_es_en/softmax-large-seed1", "bible_es_en/entmax-large-seed1"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return synthetic.write_record(tmp_path_factory.mktemp("record"), seeds=(1,))


def test_the_models_of_some_runs_stand_in_one_analysis(written, tmp_path, capsys):
    main([str(written), "--runs", f"{ONE},{OTHER}", "--output", str(tmp_path / "new")])
    analysis = json.loads((tmp_path / "new" / "analysis.json").read_text(encoding="utf-8"))
    names = [model["name"] for model in analysis["models"]]
    assert names == ["softmax-large-seed1", "entmax-large-seed1"]
    assert analysis["models"][0]["attentions"] != analysis["models"][1]["attentions"]
    ablation = tmp_path / "new" / "entmax-large-seed1.ablation.json"
    assert json.loads(ablation.read_text(encoding="utf-8"))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == str(tmp_path / "new" / "analysis.json")
    assert str(ablation) in printed
    with pytest.raises(SystemExit):
        main([str(written), "--runs", ONE, "--output", str(tmp_path / "new")])
    assert "analysis.json exists: choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["bible_es_en/nothing", "softmax-large-seed1", "../record"])
def test_a_run_that_the_record_lacks_is_named(written, tmp_path, capsys, name):
    with pytest.raises(SystemExit):
        main([str(written), "--runs", name, "--output", str(tmp_path / "new")])
    error = capsys.readouterr().err
    assert f"option --runs got '{name}', which {written} has not" in error
    assert not (tmp_path / "new").exists()


def test_runs_of_other_data_are_not_joined():
    def analysis(data, **settings):
        one = {"data": data, "numbers": [], "models": [{"name": "m"}]}
        return {**one, "settings": {"relevance_sentences": 9, "rare_rank": 1, **settings}}

    first = analysis(1)
    with pytest.raises(ValueError, match=r"b/two were analysed with other data"):
        joined([first, analysis(2)], ["a/one", "b/two"])
    with pytest.raises(ValueError, match=r"b/two were analysed with other settings"):
        joined([first, analysis(1, rare_rank=2)], ["a/one", "b/two"])
    # How many sentences relevance takes follows from the model
    both = joined([first, analysis(1, relevance_sentences=7)], ["a/one", "a/two"])
    assert both["settings"] == {"relevance_sentences": 7, "rare_rank": 1}
