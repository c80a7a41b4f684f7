"""A document that the release before wrote."""

import json
from pathlib import Path

import pytest

from fairseq_entmax import cli
from fairseq_entmax.analysis import document
from fairseq_entmax.analysis.report.figures import figures
from fairseq_entmax.analysis.report.payload import measures_of
from tests.damage import sentence_of

FILE = Path(__file__).parent / "data" / "analysis-version-1.json"


# What version 1 did not know
LATER = ("equal_weights", "relative_position", "copy_agreement", "pos_shares")


@pytest.fixture
def old():
    return json.loads(FILE.read_text(encoding="utf-8"))


def test_what_stood_in_a_head_stands_among_its_values(old):
    assert old["version"] == 1
    new = document.read(FILE)
    assert new["version"] == 2
    numbers = {number.name: number for number in measures_of(new)}
    seen = 0
    for before, after in zip(old["models"], new["models"], strict=True):
        for one, other in zip(before["attentions"], after["attentions"], strict=True):
            for head, now in zip(one["heads"], other["heads"], strict=True):
                assert now == {
                    **{key: value for key, value in head.items() if key != "alpha"},
                    "values": {"alpha": head["alpha"]},
                    **dict.fromkeys(LATER),
                }
                assert numbers["alpha"].of(now, other) == head["alpha"]
                assert numbers["diversity"].of(now, other) == one["diversity"]
                seen += 1
    assert seen == 42
    assert old["maps"] == new["maps"]


def test_what_was_learned_is_told_by_the_mapping(old):
    new = document.read(FILE)
    learned = [{tuple(row["learned"]) for row in model["attentions"]} for model in new["models"]]
    assert learned == [{()}, {("alpha",), ()}]
    rows = new["models"][1]["attentions"]
    assert [row["heads"] for row in rows if not row["learned"]] == [[]]
    lines = new["models"][1]["records"]["alpha"]
    assert [line["update"] for line in lines] == [0, 1, 2, 3]
    assert lines[0]["values"] == old["models"][1]["alpha_record"][0]["alpha"]
    assert new["models"][0]["records"] == {}


def test_it_is_drawn_as_the_release_before_drew_it(tmp_path):
    output = tmp_path / "report.html"
    assert cli.main(["report", str(FILE), f"--output={output}", "--measure=weight@-1"]) == 0
    assert "encoder-self" in output.read_text(encoding="utf-8")
    drawn = [figure.name for figure in figures(document.read(FILE))]
    assert drawn == [
        "alpha_trajectories",
        "alpha_histogram",
        "density_distribution",
        "density_by_layer",
        "diversity_by_layer",
        *(
            f"confidence_and_importance-{name}"
            for name in ("encoder-self", "decoder-self", "cross")
        ),
        "importance_agreement",
        "dependency_accuracy",
        # Drawn since, of numbers that were there
        *(
            f"{name}_by_head-{attention}"
            for attention in ("encoder-self", "cross")
            for name in ("pos_kl", "named_entity")
        ),
    ]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda old: old["models"][0]["attentions"][0].update(mapping="hardmax"), "hardmax"),
        (lambda old: old["models"][0]["attentions"][0].update(mapping=7), "is damaged"),
        (lambda old: old["models"][0].pop("alpha_record"), "form of version 1 (it has no"),
        (lambda old: old["models"].append(3), "form of version 1 (something"),
        (lambda old: old.pop("annotations"), "form of version 1 (it has no"),
        (lambda old: old["models"][0].update(attentions=None), "form of version 1 (something"),
        (
            lambda old: old["models"][0]["attentions"][0]["heads"][0].update(alpha=0.9),
            "$.models[0].attentions[0].heads[0].values.alpha",
        ),
        (
            lambda old: old["models"][1].update(alpha_record=[{"update": 0, "alpha": "x"}]),
            "$.models[1].records.alpha[0].values",
        ),
    ],
)
def test_a_damaged_one_is_refused_in_one_sentence(old, damage, words, tmp_path, capsys):
    damage(old)
    path = tmp_path / "analysis.json"
    path.write_text(json.dumps(old), encoding="utf-8")
    said = sentence_of(["report", path, f"--output={tmp_path / 'r.html'}"], capsys)
    assert said.startswith(f"fairseq-entmax report: {path} is damaged")
    assert words in said
