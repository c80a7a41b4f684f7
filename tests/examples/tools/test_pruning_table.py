"""The table of prune.sh, from files of scores and speeds."""

import json

import pytest
from pruning_table import heads_in_words, measured, score_in, table

HEADS = "--encoder-self-attn-heads 0,2,0 --decoder-self-attn-heads 8,5,1 --cross-attn-heads 3,3,3\n"


@pytest.fixture
def speed(tmp_path):
    rows = [
        {"model": "a.pt", "parameters": 1000, "sentences_per_second": 12.345, "ratio": 1.0},
        {"model": "b.pt", "parameters": 90, "sentences_per_second": 20.0, "ratio": 1.618},
    ]
    path = tmp_path / "speed.json"
    path.write_text(json.dumps({"models": rows}), encoding="utf-8")
    return path


def test_heads_are_shown_in_all_and_for_each_layer():
    assert heads_in_words(HEADS) == {
        "encoder-self": "2 (0,2,0)",
        "decoder-self": "14 (8,5,1)",
        "cross": "9 (3,3,3)",
    }


def test_a_row_has_heads_score_and_speed_of_its_own_model(tmp_path, speed):
    scores = tmp_path / "scores.txt"
    scores.write_text("BLEU|nrefs:1 = 24.50 55.1/30.2\n", encoding="utf-8")
    runs = [("entmax", "all6-pruned", "b.pt", str(scores), str(speed))]
    header, row = table(runs, heads_of=lambda _: HEADS)
    attentions = ["encoder-self", "decoder-self", "cross"]
    assert header == ["mapping", "model", *attentions, "BLEU", "parameters", "sentences/s", "speed"]
    assert row == [
        *("entmax", "all6-pruned", "2 (0,2,0)", "14 (8,5,1)", "9 (3,3,3)"),
        *("24.50", "90", "20.0", "1.62"),
    ]


def test_a_model_that_was_not_measured_is_named(speed):
    with pytest.raises(ValueError, match=r"speed\.json has no c\.pt: remove that file"):
        measured(speed, "c.pt")


def test_without_speed_a_row_ends_with_the_scores_that_are_asked_for(tmp_path):
    scores = tmp_path / "test.rouge.json"
    found = {"rouge1": {"f1": {"value": 38.7649}}, "rougeL": {"f1": {"value": 36.0}}}
    scores.write_text(json.dumps(found), encoding="utf-8")
    runs = [("entmax", "baseline", "b.pt", str(scores), "")]
    rows = table(runs, heads_of=lambda _: HEADS, metrics=["ROUGE-1", "ROUGE-L"])
    assert rows[0][5:] == ["ROUGE-1", "ROUGE-L"]
    assert rows[1][5:] == ["38.76", "36.00"]


def test_a_language_model_has_one_attention_and_its_perplexity_of_a_word(tmp_path):
    scores = tmp_path / "perplexity.json"
    found = {"blocks": {"word_perplexity": 123.456}, "window": {"word_perplexity": 99.0}}
    scores.write_text(json.dumps(found), encoding="utf-8")
    runs = [("entmax", "baseline", "b.pt", str(scores), "")]
    heads = "--decoder-self-attn-heads 4,1\n"
    assert table(runs, heads_of=lambda _: heads, metrics=["window", "blocks"]) == [
        ["mapping", "model", "decoder-self", "window", "blocks"],
        ["entmax", "baseline", "5 (4,1)", "99.00", "123.46"],
    ]


def test_options_that_are_no_numbers_of_heads_are_not_counted():
    assert heads_in_words(f"--cross-attn-mapping softmax,entmax {HEADS}") == heads_in_words(HEADS)


def test_accuracy_is_read_from_what_accuracy_py_wrote(tmp_path):
    (tmp_path / "test.accuracy.json").write_text('{"accuracy": 92.239, "correct": 2970}')
    assert score_in("accuracy", tmp_path / "test.accuracy.json") == "92.24"
