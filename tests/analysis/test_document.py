"""Reading, checking and writing the document of an analysis."""

import json
from functools import reduce
from operator import getitem

import pytest

from fairseq_entmax.analysis import document
from tests.analysis.report.synthetic import synthetic_analysis


def small():
    return synthetic_analysis(models=2, layers=2, heads=2, sentences=2, length=6)


HEAD = ("models", 0, "attentions", 0, "heads", 0)


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ((*HEAD, "density"), 1.5, "heads[0].density"),
        ((*HEAD, "values", "alpha"), 0.9, "heads[0].values.alpha"),
        ((*HEAD, "values"), {"a b": 1.0}, "heads[0].values"),
        ((*HEAD, "density"), "dense", "heads[0].density"),
        ((*HEAD, "mood"), 1, "'mood' was unexpected"),
        ((*HEAD, "offsets"), {"maximum": {}}, "heads[0].offsets"),
        (("models", 0, "attentions", 0, "attention"), "self", "attentions[0].attention"),
        (("data", "sentences"), -1, "data.sentences"),
        (("maps", 0), {}, "is a required property"),
        (("maps", 0, "models", 0, 0, "shape"), [1, 2], "shape"),
        (("models",), [], "models"),
    ],
)
def test_an_invalid_value_is_refused_with_its_place(path, value, place):
    analysis = small()
    *parents, last = path
    reduce(getitem, parents, analysis)[last] = value
    with pytest.raises(ValueError, match=r"a\.json is damaged at") as error:
        document.validate(analysis, "a.json")
    assert place in str(error.value)


def test_another_document_or_version_is_refused():
    for other in (None, [], {}, "text"):
        with pytest.raises(
            ValueError, match=r"a\.json was not written by 'fairseq-entmax analyze'"
        ):
            document.validate(other, "a.json")
    with pytest.raises(ValueError, match=r"has version 7 of the format.*analyse the checkpoints"):
        document.validate({**small(), "version": 7}, "a.json")


def test_writing_rounds_numbers_and_a_failure_leaves_the_old_file(tmp_path):
    values = [1 / 3, 12345678.9, 1e-12, 1 - 1e-9]  # no share below 1 becomes 1
    path = document.write({"a": values, "b": (True, None, 7)}, str(tmp_path))
    assert path == str(tmp_path / "analysis.json")
    with pytest.raises(ValueError, match="not JSON compliant"):
        document.write({"new": float("nan")}, str(tmp_path))
    text = json.loads((tmp_path / "analysis.json").read_text())
    assert text == {"a": [0.333333, 12345700.0, *values[2:]], "b": [True, None, 7]}
    assert [file.name for file in tmp_path.iterdir()] == ["analysis.json"]
    with pytest.raises(FileExistsError, match=r"--output: .* exists: .* --overwrite"):
        document.check_output(str(tmp_path), overwrite=False)
    document.check_output(str(tmp_path), overwrite=True)
    document.check_output(str(tmp_path / "new"), overwrite=False)
