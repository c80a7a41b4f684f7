"""The figures after Baan et al.: what is in them, worked out by hand."""

import json

import pytest
import vl_convert

from fairseq_entmax.analysis.report.ablation_table import read_ablations
from fairseq_entmax.analysis.report.figures import figures
from fairseq_entmax.analysis.report.figures_activations import (
    ablation_matrices,
    head_matrices,
    tag_distributions,
)
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.report.test_figure_data import data
from tests.analysis.report.test_figures import layer_of


@pytest.fixture
def small():
    analysis = synthetic_analysis(models=2, layers=2, heads=4, sentences=0)
    layer_of(analysis, 1, "cross", 1)["copy_heads"] = [2]
    return analysis


def named(drawn, name):
    (figure,) = (figure for figure in drawn if figure.name == name)
    return figure


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


def test_the_three_heads_that_differ_most_are_shown_with_their_tags(small):
    layers = [layer_of(small, 0, "cross", number) for number in range(2)]
    for layer in layers:
        for head in layer["heads"]:
            head["pos_kl"] = 0.01 * head["head"] + 0.001 * layer["layer"]
    figure = named(tag_distributions(small), "pos_kl_tags-cross")
    rows = [row for row in data(figure) if row["model"] == "softmax"]
    order = list(dict.fromkeys((row["rank"], row["layer"], row["head"]) for row in rows))
    assert order == [("highest", 1, 3), ("second", 0, 3), ("third", 1, 2)]
    shares = {row["tag"]: row["share"] for row in rows if row["rank"] == "second"}
    assert shares == pytest.approx(layers[0]["heads"][3]["pos_shares"], rel=1e-5)
    assert {row["tag"]: row["text"] for row in rows} == small["annotations"]["part_of_speech"]
    assert "softmax: 1.3 (0.03), 0.3 (0.03), 1.2 (0.02)" in figure.caption


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("pos_kl_by_head-cross", ("pos_kl",)),
        ("named_entity_by_head-encoder-self", ("named_entity",)),
        ("relative_position_by_head-cross", ("relative_position",)),
        ("copy_agreement_by_head-cross", ("copy_agreement", "largest")),
    ],
)
def test_a_matrix_has_a_cell_for_each_head_of_each_model(small, name, field):
    rows = data(named(head_matrices(small), name))
    attention = name.split("head-")[1]
    assert len(rows) == 2 * 2 * 4
    for row in rows:
        model = ["softmax", "entmax15"].index(row["model"])
        value = layer_of(small, model, attention, row["layer"])["heads"][row["head"]]
        for key in field:
            value = value[key]
        assert row["value"] == pytest.approx(value, rel=1e-5)


def test_copy_heads_have_a_frame_in_every_matrix(small):
    for figure in head_matrices(small):
        framed = [(r["model"], r["layer"], r["head"]) for r in data(figure) if r["copies"]]
        is_cross = figure.name.endswith("cross")
        assert framed == [("entmax15", 1, 2)] * is_cross
        assert ("copied by the heads in a frame" in figure.caption) == is_cross


def test_pruned_heads_are_gaps(small):
    layer_of(small, 0, "cross", 1)["heads"].clear()
    rows = data(named(head_matrices(small), "pos_kl_by_head-cross"))
    assert {(row["model"], row["layer"]) for row in rows} == {
        ("softmax", 0), ("entmax15", 0), ("entmax15", 1),
    }  # fmt: skip


def test_any_score_of_an_ablation_is_drawn_with_its_significance(small, tmp_path):
    scores = {"rouge1": change_of(-1.5, 0.04), "my score": change_of(0.5, 0.05)}
    paths = [
        written(tmp_path, ablation_of(small, 0, **scores), "before.json"),
        written(tmp_path, ablation_of(small, 1, rouge1=change_of(-3, 0.2)), "after.json"),
    ]
    drawn = ablation_matrices(small, read_ablations(paths, small))
    assert [figure.name for figure in drawn] == [
        "ablation_rouge1_by_head-encoder-self",
        "ablation_rouge1_by_head-cross",
        "ablation_my_score_by_head-encoder-self",
        "ablation_my_score_by_head-cross",
    ]
    rows = data(drawn[1])
    assert [(r["model"], r["layer"], r["head"], r["value"], r["mark"]) for r in rows] == [
        ("softmax", 1, 2, -1.5, "*"),
        ("entmax15", 1, 2, -3, ""),
    ]
    assert [row["copies"] for row in rows] == [False, True]
    assert {row["mark"] for row in data(drawn[3])} == {""}
    assert "ROUGE-1" in drawn[1].caption


def test_every_ablation_can_be_drawn_without_a_warning(small, tmp_path, capfd):
    path = written(tmp_path, ablation_of(small, bleu=change_of(0.0), loss=change_of(0.25)))
    drawn = figures(small, None, read_ablations([path], small))
    mine = [figure for figure in drawn if figure.name.startswith("ablation")]
    assert len(mine) == 4
    for figure in mine:
        assert "<path" in vl_convert.vegalite_to_svg(figure.for_paper(), show_warnings=True)
        assert "WARN" not in "".join(capfd.readouterr())


def test_an_ablation_is_of_the_checkpoint_whatever_its_path_is_written_like(small, tmp_path):
    small["models"][0]["checkpoint"] = str(tmp_path / "m.pt")
    document = ablation_of(small, rouge1=change_of(-1))
    document["checkpoint"] = str(tmp_path / "x" / ".." / "m.pt")
    (one,) = read_ablations([written(tmp_path, document)], small)
    assert one.model == "softmax"
    assert [str(head) for head in one.scores["rouge1"]] == ["cross:1.2", "encoder-self:0.0"]


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
            {"removals": [{"heads": ["cross:0.0"], "bleu": change_of(float("nan"))}]},
            "a bleu has nan where a number is to be",
        ),
    ],
)
def test_what_is_no_ablation_of_these_models_is_refused_in_one_sentence(
    small, tmp_path, change, message
):
    path = written(tmp_path, {**ablation_of(small), **change})
    with pytest.raises(ValueError, match=message) as caught:
        read_ablations([path], small)
    assert str(caught.value).startswith(f"--ablation {path}")


def test_an_ablation_on_other_data_is_not_drawn_beside_the_analysis(small, tmp_path):
    document = ablation_of(small)
    document["data"] = {**small["data"], "subset": "valid"}
    with pytest.raises(ValueError, match="its subset is valid, and that of the analysis test"):
        read_ablations([written(tmp_path, document)], small)


def test_two_ablations_of_one_model_are_refused(small, tmp_path):
    path = written(tmp_path, ablation_of(small))
    with pytest.raises(ValueError, match="another file is of the model softmax, too"):
        read_ablations([path, path], small)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_file_that_is_no_document_is_refused(small, tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"give its ablation\.json"):
        read_ablations([tmp_path / "a.json"], small)
    with pytest.raises(FileNotFoundError, match=r"--ablation .* does not exist"):
        read_ablations([tmp_path / "none.json"], small)
