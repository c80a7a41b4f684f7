"""Tables that compare models, what a test set can distinguish, and how tables are printed."""

import json

import numpy
import pytest
import rouge_table
import side_by_side
from claims.statistics import paired_bootstrap
from sacrebleu.metrics import BLEU, CHRF
from tables import shown

WORDS = ["cat", "dog"] * 30
REFERENCES = [f"the {word} sat on the mat number {n} ." for n, word in enumerate(WORDS)]


@pytest.fixture
def runs(tmp_path):
    """Three models: two with an error in every sentence and equal scores, and one without errors."""
    wrong, other = ([t.replace("sat on", bad) for t in REFERENCES] for bad in ("is at", "is by"))
    for name, texts in {"poor": wrong, "same": other, "good": REFERENCES}.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, text in (("test.hyp", texts), ("test.ref", REFERENCES)):
            (folder / file).write_text("".join(f"{line}\n" for line in text))
        scores = [
            f"{metric}|sig = {score.corpus_score(texts, [REFERENCES]).score:.2f} more\n"
            for metric, score in (("BLEU", BLEU()), ("chrF2", CHRF()))
        ]
        (folder / "scores.txt").write_text("".join(scores))
    return [str(tmp_path / name) for name in ("poor", "same", "good")]


def test_each_model_is_compared_with_the_first(capsys, runs):
    side_by_side.main([*runs, "--names", "poor", "same", "good"])
    titles, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    poor, same, good = (dict(zip(titles, row, strict=True)) for row in rows)
    assert (poor["change"], poor["p"]) == ("", "")
    assert (same["change"], same["p"]) == ("+0.00", "")
    assert good["BLEU"] == "100.00"
    assert float(good["change"]) == pytest.approx(100 - float(poor["BLEU"]), abs=0.01)
    assert 0 < float(good["p"]) < 0.01


def test_p_is_two_sided_and_near_that_of_the_claims():
    places = [range(0, 60, 3), range(1, 52, 3)]  # of sentences with an error
    texts = [
        [t.replace("sat on", "is at") if n in own else t for n, t in enumerate(REFERENCES)]
        for own in places
    ]
    bleu = BLEU(references=[REFERENCES])
    rows = [numpy.array(bleu._extract_corpus_statistics(text, None)) for text in texts]
    expected = paired_bootstrap([rows[1]], [rows[0]]).p
    assert 0.2 < expected < 0.8
    assert side_by_side.p_values(texts, REFERENCES) == [None, pytest.approx(expected, abs=0.2)]


def test_words_of_the_target_language_are_counted():
    texts = [["今天天气很好。我们去公园。"] * 9 + [last] * 9 for last in ("我们去学校", "我们去")]
    references = ["今天天气很好。我们去公园。"] * 9 + ["我们去学校。"] * 9
    assert side_by_side.p_values(texts, references) == [None, None]  # no sentence is one word
    _, chance = side_by_side.p_values(texts, references, "zh")
    assert chance is not None
    assert chance < 0.1


def test_models_that_were_scored_on_other_sentences_are_refused(refusal, runs, tmp_path):
    (tmp_path / "good" / "test.ref").write_text("another\n")
    error = refusal(side_by_side.main, [*runs, "--names", "poor", "same", "good"])
    assert "were scored on different test sets: run evaluate.sh again" in error


def test_the_first_rouge_row_has_its_interval_and_others_their_change(tmp_path, capsys):
    values = {"rouge1": 40.0, "rouge2": 20.0, "rougeL": 35.0}
    own = {kind: {"f1": {"value": v, "low": v - 1, "high": v + 1}} for kind, v in values.items()}
    less = {"change": -2.5, "low": -3.5, "high": -1.5, "p_bootstrap": 0.0125}
    compared = {kind: {"value": value - 2.5, **less} for kind, value in values.items()}
    for name, other in (("a", None), ("b", compared)):
        document = {"settings": {"statistic": "f1"}, "compared": other, **own}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    rouge_table.main([*files, "--names", "copy", "no-copy"])
    _, first, second = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert first == ["copy", "40.00", "20.00", "35.00", "", "34.00 to 36.00", ""]
    assert second == ["no-copy", "37.50", "17.50", "32.50", "-2.50", "-3.50 to -1.50", "0.013"]


def test_a_table_is_shown_in_columns(tmp_path):
    (tmp_path / "a.tsv").write_text("model\tBLEU\tchange\nstock\t9.10\t\nentmax\t10.20\t+1.10\n")
    expected = "model    BLEU  change\nstock    9.10\nentmax  10.20  +1.10"
    assert shown(tmp_path / "a.tsv") == expected
