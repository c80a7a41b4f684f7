"""Translations in the order of the test set; tests/examples/test_recipe_shell.py reads scores."""

import pytest
from translations import main

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
