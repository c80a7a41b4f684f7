"""Scores of models in one table, with what a test set can tell apart."""

from __future__ import annotations

import pytest
from sacrebleu.metrics import BLEU, CHRF
from side_by_side import main

REFERENCES = [
    f"the {word} sat on the mat number {n} ." for n, word in enumerate(["cat", "dog"] * 30)
]


@pytest.fixture
def runs(tmp_path):
    """Three models: one that errs in every sentence, a copy of it, and one that never errs."""
    wrong = [text.replace("sat on", "was at") for text in REFERENCES]
    folders = []
    for name, texts in {"poor": wrong, "same": wrong, "good": REFERENCES}.items():
        folder = tmp_path / name
        folder.mkdir()
        folders.append(str(folder))
        for file, text in (("test.hyp", texts), ("test.ref", REFERENCES)):
            (folder / file).write_text("".join(f"{line}\n" for line in text))
        scores = [
            f"{metric}|sig = {score.corpus_score(texts, [REFERENCES]).score:.2f} more\n"
            for metric, score in (("BLEU", BLEU()), ("chrF2", CHRF()))
        ]
        (folder / "scores.txt").write_text("".join(scores))
    return folders


def table(capsys, runs):
    main(["write", *runs, "--names", "poor", "same", "good"])
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def test_each_model_is_compared_with_the_first(capsys, runs):
    poor, same, good = table(capsys, runs)
    assert (poor["change"], poor["p"]) == ("", "")
    assert (same["change"], same["p"]) == ("+0.00", "")
    assert good["BLEU"] == "100.00"
    assert float(good["change"]) == pytest.approx(100 - float(poor["BLEU"]), abs=0.01)
    assert 0 < float(good["p"]) < 0.01


def test_models_that_were_scored_on_other_sentences_are_refused(capsys, runs, tmp_path):
    (tmp_path / "good" / "test.ref").write_text("another\n")
    with pytest.raises(SystemExit):
        table(capsys, runs)
    assert "were scored on different test sets: run evaluate.sh again" in capsys.readouterr().err


def test_a_table_is_shown_in_columns(capsys, tmp_path):
    (tmp_path / "scores.tsv").write_text(
        "model\tBLEU\tchange\nstock\t9.10\t\nentmax\t10.20\t+1.10\n"
    )
    main(["show", str(tmp_path / "scores.tsv")])
    assert capsys.readouterr().out == (
        "model    BLEU  change\nstock    9.10\nentmax  10.20   +1.10\n"
    )
