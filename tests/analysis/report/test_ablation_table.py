"""Results of ablate and of prune.sh, beside the heads of an analysis."""

import json

import pytest

from fairseq_entmax.analysis.report.ablation_table import with_ablations
from fairseq_entmax.analysis.report.figures_pruning import read_pruning
from tests.analysis.report.page_actions import layer_of
from tests.analysis.report.synthetic import synthetic_analysis

DATA = synthetic_analysis(models=1, layers=1, heads=1, sentences=0)["data"]
HEADER = "mapping\tmodel\tencoder-self\tdecoder-self\tcross\tBLEU\tparameters\tsentences/s\tspeed"
GOOD = "softmax\tall24-pruned\t1 (0,1,0)\t7 (7,0,0)\t16 (1,7,8)\t18.13\t852736\t38.3\t1.25"


def change_of(value, p_holm=0.5):
    return {"value": 30 + value, "change": value, "p": 0.01, "p_holm": p_holm}


def ablation_of(analysis, model=0, **scores):
    """The parts of ``ablation.json`` that are read, with the same scores for two heads."""
    heads = [["cross:1.2"], ["encoder-self:0.0"], ["cross:0.0", "cross:0.1"]]
    return {
        "format": "fairseq-entmax-ablation",
        "version": 1,
        "checkpoint": analysis["models"][model]["checkpoint"],
        "settings": {"checkpoint_sha256": analysis["models"][model]["checkpoint_sha256"]},
        "data": analysis["data"],
        "unchanged": {},
        "removals": [{"heads": names, "loss": None, **scores} for names in heads],
    }


def written(tmp_path, document, name="ablation.json"):
    text = document if isinstance(document, str) else json.dumps(document)
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


def test_any_score_of_an_ablation_is_joined_with_its_significance(small, tmp_path):
    scores = {"rouge1": change_of(-1.5, 0.04), "my score": change_of(0.5, 0.05)}
    other = ablation_of(small, 1, rouge1=change_of(-3, 0.2))
    other["checkpoint"] = "elsewhere.pt"  # the same content
    documents = {"before.json": ablation_of(small, 0, **scores), "after.json": other}
    paths = [written(tmp_path, one, name) for name, one in documents.items()]
    found = with_ablations(small, paths)
    heads = {
        (number, layer["attention"], layer["layer"], head["head"]): head
        for number, model in enumerate(found["models"])
        for layer in model["attentions"]
        for head in layer["heads"]
        if "ablation" in head
    }
    expected = [({"rouge1": -1.5, "my score": 0.5}, ["rouge1"]), ({"rouge1": -3}, [])]
    places = (("encoder-self", 0, 0), ("cross", 1, 2))
    assert {place: (head["ablation"], head["significant"]) for place, head in heads.items()} == {
        (n, *place): own for n, own in enumerate(expected) for place in places
    }
    assert "ablation" not in layer_of(small, 0, "cross", 1)["heads"][2]
    numbers = [one for one in found["numbers"] if one["name"].startswith("ablation")]
    assert [one["name"] for one in numbers] == ["ablation-rouge1", "ablation-my score"]
    assert "ROUGE-1" in numbers[0]["title"]


def test_the_change_of_the_loss_has_the_unit_of_each_model(small, tmp_path):
    paths = []
    for model, unit in enumerate(({}, {"loss_unit": "entmax loss a token"})):
        document = {**ablation_of(small, model, loss=change_of(0.1)), **unit}
        paths.append(written(tmp_path, document, f"{model}.json"))
    names = [model["name"] for model in small["models"]]
    (number,) = (x for x in with_ablations(small, paths)["numbers"] if x["name"] == "ablation-loss")
    assert f"({names[0]}: nats a token, {names[1]}: entmax loss a token)" in number["meaning"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"settings": {"checkpoint_sha256": "0" * 64}},
            "it is of the weights that runs/softmax/.* had then, but the analysis is of others, runs/s",
        ),
        ({"version": 2}, "is not version 1 of what 'fairseq-entmax ablate' writes"),
        ({"removals": 3}, "is damaged: it is malformed"),
        ({"data": DATA | {"subset": "valid"}}, "its subset is valid, but that of the analysis is "),
        ({"data": DATA | {"sentences": 17}}, "its number of sentences is 17, but that of "),
    ],
)  # fmt: skip
def test_an_ablation_of_other_models_or_data_is_refused_in_a_line(small, tmp_path, change, message):
    path = written(tmp_path, {**ablation_of(small), **change})
    with pytest.raises(ValueError, match=message) as caught:
        with_ablations(small, [path])
    assert str(caught.value).startswith(f"--ablation {path}")


def test_a_model_ablated_twice_and_files_that_are_no_document_are_refused(small, tmp_path):
    path = written(tmp_path, ablation_of(small))
    with pytest.raises(ValueError, match="another file is also of the model softmax"):
        with_ablations(small, [path, path])
    for text in ("[]", "{", "[" * 100_000):
        with pytest.raises(ValueError, match=r"give its ablation\.json"):
            with_ablations(small, [written(tmp_path, text)])


def pruning(tmp_path, *lines):
    return written(tmp_path, "".join(f"{line}\n" for line in lines), "pruning.tsv")


def test_rows_of_the_pruning_table_have_its_columns(tmp_path):
    (row,) = read_pruning(pruning(tmp_path, HEADER, GOOD))
    heads = [[0, 1, 0], [7, 0, 0], [1, 7, 8]]
    values = ["softmax", "all24-pruned", *heads, 18.13, 852736, 38.3, 1.25]
    assert row == dict(zip(HEADER.split("\t"), values, strict=True))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "the first line does not name the columns mapping, model"),
        ([HEADER, GOOD, GOOD[:-5]], "line 3: .*run prune.sh again"),
        ([HEADER, GOOD.replace("1 (0,1,0)", "24")], "line 2: .*run prune.sh again"),
        ([HEADER, GOOD.replace("18.13", "good")], "line 2: .*'good'"),
    ],
)
def test_a_malformed_pruning_table_gives_a_one_line_error_with_the_line(tmp_path, lines, message):
    path = pruning(tmp_path, *lines)
    with pytest.raises(ValueError, match=message) as caught:
        read_pruning(path)
    assert str(caught.value).startswith(f"--pruning {path}")
