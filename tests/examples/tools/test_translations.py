"""Translations in the order of the test set, and scores out of what sacrebleu prints."""

import pytest
from translations import main, score_of

GENERATED = (
    "S-10\tzehn\nH-10\t-0.5\tten\nD-10\t-0.5\tTEN\nH-2\t-1\ttwo\ttabs\u2028in it\nH-0\t-9\t\n"
)


@pytest.fixture
def generated(tmp_path):
    path = tmp_path / "generate-test.txt"
    path.write_text(GENERATED, encoding="utf-8", newline="\n")
    return path


def test_as_many_translations_as_sentences_are_printed(generated, tmp_path, capsysbinary):
    references = tmp_path / "test.en"
    references.write_text("a\nb\nc\n")
    main([str(generated), str(references)])
    expected = "\ntwo\ttabs\u2028in it\nten\n".encode()
    assert capsysbinary.readouterr().out == expected


def test_a_missing_translation_is_said_with_the_numbers(generated, tmp_path, capsys):
    references = tmp_path / "test.en"
    references.write_text("a\nb\nc\nd\n")
    with pytest.raises(SystemExit):
        main([str(generated), str(references)])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "wrote 3 translations for 4 test sentences: see" in printed.err


def test_the_first_line_of_a_metric_counts(tmp_path):
    scores = tmp_path / "scores.txt"
    scores.write_text(" BLEU|tok:13a = 24.53 55/30\nchrF2|x = 45.62\nBLEU|tok:none = 20.00 1\n")
    assert score_of("BLEU", scores) == "24.53"
    assert score_of("chrF2", scores) == "45.62"
    with pytest.raises(ValueError, match=r"no chrF in .*: remove that file"):
        score_of("chrF", scores)
