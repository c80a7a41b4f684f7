"""The table of prune.sh, made from files of scores and speeds."""

import json

import pytest
from pruning_table import score_in, table

HEADS = {"encoder-self": "2 (0,2,0)", "decoder-self": "14 (8,5,1)", "cross": "9 (3,3,3)"}


def run(scores, speed=""):
    return [("entmax", "all6-pruned", "b.pt", str(scores), str(speed))]


def test_a_row_has_heads_score_and_speed_of_its_own_model(tmp_path):
    rows = [
        {"model": "a.pt", "parameters": 1000, "sentences_per_second": 12.345, "ratio": 1.0},
        {"model": "b.pt", "parameters": 90, "sentences_per_second": 20.0, "ratio": 1.618},
    ]
    speed, scores = tmp_path / "speed.json", tmp_path / "scores.txt"
    scores.write_text("BLEU|nrefs:1 = 24.50 55.1/30.2\n", encoding="utf-8")
    speed.write_text(json.dumps({"models": rows}), encoding="utf-8")
    header, row = table(run(scores, speed), heads_of=lambda _: HEADS)
    attentions = ["encoder-self", "decoder-self", "cross"]
    assert header == ["mapping", "model", *attentions, "BLEU", "parameters", "sentences/s", "speed"]
    assert row == [
        *("entmax", "all6-pruned", "2 (0,2,0)", "14 (8,5,1)", "9 (3,3,3)"),
        *("24.50", "90", "20.0", "1.62"),
    ]


@pytest.mark.parametrize(
    ("document", "scores"),
    [
        ({"rouge1": {"f1": {"value": 38.7649}}}, {"ROUGE-1": "38.76"}),
        (
            {"blocks": {"word_perplexity": 123.456}, "window": {"word_perplexity": 99.0}},
            {"window": "99.00", "blocks": "123.46"},
        ),
    ],
)
def test_without_speed_a_row_ends_with_the_requested_scores(document, scores, tmp_path):
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    heads = {"decoder-self": "5 (4,1)"}
    assert table(run(path), heads_of=lambda _: heads, metrics=list(scores)) == [
        ["mapping", "model", "decoder-self", *scores],
        ["entmax", "all6-pruned", "5 (4,1)", *scores.values()],
    ]
    for metric, expected in scores.items():
        assert score_in(metric, path) == expected
