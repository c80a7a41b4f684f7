"""What ablate measured, beside the heads of an analysis."""

import json

import pytest

from fairseq_entmax.analysis.report.ablation_table import with_ablations
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.report.test_figures import layer_of

DATA = synthetic_analysis(models=1, layers=1, heads=1, sentences=0)["data"]


@pytest.fixture
def small():
    return synthetic_analysis(models=2, layers=2, heads=4, sentences=0)


def change_of(value, p_holm=0.5, p=0.01):
    return {"value": 30 + value, "change": value, "p": p, "p_holm": p_holm}


def ablation_of(analysis, model=0, **scores):
    """The parts of ``ablation.json`` that are read, with the same scores of two heads."""
    heads = [["cross:1.2"], ["encoder-self:0.0"], ["cross:0.0", "cross:0.1"]]
    removals = [{"heads": names, "loss": None, **scores} for names in heads]
    return {
        "format": "fairseq-entmax-ablation",
        "version": 1,
        "checkpoint": analysis["models"][model]["checkpoint"],
        "data": analysis["data"],
        "unchanged": {},
        "removals": removals,
    }


def written(tmp_path, document, name="ablation.json"):
    (tmp_path / name).write_text(json.dumps(document), encoding="utf-8")
    return tmp_path / name


def test_any_score_of_an_ablation_is_joined_with_its_significance(small, tmp_path):
    scores = {"rouge1": change_of(-1.5, 0.04), "my score": change_of(0.5, 0.05)}
    paths = [
        written(tmp_path, ablation_of(small, 0, **scores), "before.json"),
        written(tmp_path, ablation_of(small, 1, rouge1=change_of(-3, 0.2)), "after.json"),
    ]
    found = with_ablations(small, paths)
    heads = {
        (model["name"], layer["attention"], layer["layer"], head["head"]): head
        for model in found["models"]
        for layer in model["attentions"]
        for head in layer["heads"]
        if "ablation" in head
    }
    assert {place: (one["ablation"], one["significant"]) for place, one in heads.items()} == {
        ("softmax", "encoder-self", 0, 0): ({"rouge1": -1.5, "my score": 0.5}, ["rouge1"]),
        ("softmax", "cross", 1, 2): ({"rouge1": -1.5, "my score": 0.5}, ["rouge1"]),
        ("entmax15", "encoder-self", 0, 0): ({"rouge1": -3}, []),
        ("entmax15", "cross", 1, 2): ({"rouge1": -3}, []),
    }
    numbers = [one for one in found["numbers"] if one["name"].startswith("ablation")]
    assert [one["name"] for one in numbers] == ["ablation-rouge1", "ablation-my score"]
    assert "ROUGE-1" in numbers[0]["title"]


def test_an_ablation_is_of_the_checkpoint_whatever_its_path_is_written_like(small, tmp_path):
    small["models"][0]["checkpoint"] = str(tmp_path / "m.pt")
    document = ablation_of(small, rouge1=change_of(-1))
    document["checkpoint"] = str(tmp_path / "x" / ".." / "m.pt")
    found = with_ablations(small, [written(tmp_path, document)])
    assert layer_of(found, 0, "cross", 1)["heads"][2]["ablation"] == {"rouge1": -1}
    assert "ablation" not in layer_of(found, 1, "cross", 1)["heads"][2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoint": "other.pt"}, "it is of other.pt, and the analysis of runs/softmax/"),
        ({"format": "x"}, "is not version 1 of what 'fairseq-entmax ablate' writes"),
        ({"version": 2}, "is not version 1 of what 'fairseq-entmax ablate' writes"),
        ({"removals": 3}, "is damaged: something in it has another form"),
        ({"removals": [{"heads": ["cross:x"]}]}, "'cross:x' names no heads"),
        ({"data": {}}, "is damaged: it has no 'subset'"),
        (
            {"data": DATA | {"subset": "valid"}},
            "its subset is valid, and that of the analysis test",
        ),
    ],
)
def test_what_is_no_ablation_of_these_models_is_refused_in_one_sentence(
    small, tmp_path, change, message
):
    path = written(tmp_path, {**ablation_of(small), **change})
    with pytest.raises(ValueError, match=message) as caught:
        with_ablations(small, [path])
    assert str(caught.value).startswith(f"--ablation {path}")


def test_two_ablations_of_one_model_are_refused(small, tmp_path):
    path = written(tmp_path, ablation_of(small))
    with pytest.raises(ValueError, match="another file is of the model softmax, too"):
        with_ablations(small, [path, path])


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_file_that_is_no_document_is_refused(small, tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"give its ablation\.json"):
        with_ablations(small, [tmp_path / "a.json"])
    with pytest.raises(FileNotFoundError, match=r"--ablation .* does not exist"):
        with_ablations(small, [tmp_path / "none.json"])
