"""Translations in the order of the test set; tests/examples/test_recipe_shell.py tests scores."""

import pytest
from translations import main

GENERATED = "S-2\tzehn\nH-2\t-0.5\tten\nH-2\t-0.7\tthe second best\n"
GENERATED += "H-1\t-1\ttwo\ttabs\u2028in it\nH-0\t-9\t\n"


def test_translations_are_printed_only_if_there_is_one_per_sentence(tmp_path, capsysbinary):
    generated, references = tmp_path / "generate-test.txt", tmp_path / "test.en"
    generated.write_text(GENERATED, encoding="utf-8", newline="\n")
    references.write_text("a\nb\nc\n")
    main([str(generated), str(references)])
    expected = "\ntwo\ttabs\u2028in it\nten\n".encode()
    assert capsysbinary.readouterr().out == expected
    references.write_text("a\nb\nc\nd\n")
    with pytest.raises(SystemExit):
        main([str(generated), str(references)])
    out, error = capsysbinary.readouterr()
    assert out == b""
    assert b"has 3 sentences for 4 references, and sentence 3" in error
