"""What a report says of how its numbers came about."""

import json
from pathlib import Path

import pytest

from fairseq_entmax import cli
from fairseq_entmax.analysis import document
from fairseq_entmax.analysis.report import roles
from fairseq_entmax.analysis.report.notes import chosen_text, courses, importance_rows
from fairseq_entmax.analysis.summary import as_table
from tests.analysis.report.synthetic import synthetic_analysis

EARLIER = Path(__file__).parent.parent / "data" / "analysis-version-2-earlier.json"


@pytest.fixture
def analysis():
    """A softmax, a 1.5-entmax and an alpha-entmax model; the last has a record of alpha."""
    return synthetic_analysis(models=3, layers=2, heads=4, sentences=3, length=12)


def test_the_numbers_of_sentences_are_those_of_the_model_with_their_largest_error(analysis):
    model = analysis["models"][1]
    model["importance_sentences"] = {"relevance": 96, "gradient": 1000}
    for layer in model["attentions"]:
        for head in layer["heads"]:
            head["standard_errors"] = {"relevance": 0.002 + head["head"] / 1000, "gradient": None}
    rows = {(row["model"], row["measure"]): row for row in importance_rows(analysis)}
    assert rows[1, "Relevance"]["sentences"] == 96
    assert rows[1, "Relevance"]["data"] == 1000
    assert rows[1, "Relevance"]["error"] == pytest.approx(0.005)
    assert rows[1, "Gradient"]["error"] is None
    # What is not said of a model is in the settings
    assert rows[0, "Relevance"]["sentences"] == analysis["settings"]["relevance_sentences"]
    assert rows[0, "Relevance"]["error"] is None


def test_a_measure_that_was_not_made_is_not_said_to_have_sentences(analysis):
    for model in analysis["models"]:
        for layer in model["attentions"]:
            for head in layer["heads"]:
                head["relevance"] = None
    assert {row["measure"] for row in importance_rows(analysis)} == {"Gradient"}


def course(start, end):
    values = [{"cross": {"0": own}} for own in (start, end)]
    return [{"update": 100 * place, "values": own} for place, own in enumerate(values)]


@pytest.mark.parametrize(
    ("end", "value", "words"),
    [
        ([1.11, 1.21, 1.31, 1.41, 1.51], 1, "is not specialisation"),
        ([1.21, 1.11, 1.51, 1.31, 1.41], 0.6, "left in part"),
        ([1.31, 1.11, 1.51, 1.21, 1.26], -0.1, "differences are learned"),
        ([1.51, 1.41, 1.31, 1.21, 1.11], -1, "turned round"),
    ],
)
def test_the_page_says_whether_alpha_follows_its_start(analysis, end, value, words):
    analysis["models"][2]["records"] = {"alpha": course([1.0, 1.1, 1.2, 1.3, 1.4], end)}
    (row,) = courses(analysis)
    assert row["value"] == pytest.approx(value)
    assert row["attentions"] == {"cross": row["value"]}
    assert (row["model"], row["first"], row["last"], row["heads"]) == (2, 0, 100, 5)
    assert words in row["text"]


@pytest.mark.parametrize("last", [1.0, 1.5])
def test_an_order_of_heads_that_stand_at_one_value_is_not_called_learned(analysis, last):
    end = [1.00004, 1.00001, 1.00003, 1.00002, last]
    analysis["models"][2]["records"] = {"alpha": course([1.3, 1.1, 1.2, 1.4, 1.25], end)}
    (row,) = courses(analysis)
    assert "learned" not in row["text"]
    if last > 1:
        assert row["text"].startswith("4 of 5 heads end at the same alpha, 1 to within 0.001")


def test_why_there_is_no_correlation_is_said(analysis):
    analysis["models"][2]["records"] = {"alpha": course([1.0, 1.1], [1.2, 1.3])}
    (row,) = courses(analysis)
    assert row["value"] is None
    assert row["text"] == "No correlation: 2 learn it, and 3 are needed."


def test_a_missing_record_is_said_on_the_page_and_in_the_table(analysis):
    assert "jsonl" not in as_table(analysis)
    model = analysis["models"][2]
    model["records"] = {}
    (row,) = courses(analysis)
    assert (row["model"], row["name"]) == (2, "alpha")
    for text in (row["text"], as_table(analysis).splitlines()[-1]):
        assert "alpha.jsonl" in text
        assert model["checkpoint"] in text


def test_how_sentences_were_chosen_is_said(analysis):
    assert chosen_text(analysis) is None
    analysis["chosen"] = {"by": "typical", "lengths": [9, 14, 24, 40, 60]}
    text = chosen_text(analysis)
    assert "half of the data has 14 to 40 tokens" in text
    assert "median is 24" in text
    lengths = [max(len(one["source"]), len(one["targets"])) for one in analysis["maps"]]
    assert f"of {min(lengths)} to {max(lengths)} tokens" in text
    assert "every label" in chosen_text(
        {**analysis, "chosen": analysis["chosen"] | {"by": "varied"}}
    )
    assert "--sentences" in chosen_text({**analysis, "chosen": {"by": "asked"}})
    assert chosen_text({**analysis, "maps": []}) is None
    text = chosen_text({**analysis, "chosen": {"by": "typical", "lengths": [64] * 5}})
    assert "half of the data and more has 64 tokens" in text


def test_the_words_of_roles_are_explained_by_the_numbers_that_decide(monkeypatch):
    monkeypatch.setattr(roles, "OFTEN", 0.37)
    monkeypatch.setattr(roles, "NEARLY_ALL", 0.83)
    words = dict(roles.explanations({"positional_share": 0.77, "rare_rank": 444}))
    assert "37 %" in words["often …"]
    assert "77 %" in words["often …"]
    assert "83 %" in words["dense"]
    assert "83 %" in words["one key"]
    assert "444" in words["rare words"]


def test_the_report_of_an_analysis_of_an_earlier_release_says_what_it_can(tmp_path, capsys):
    analysis = document.read(EARLIER)
    assert "standard_errors" not in json.dumps(analysis)
    rows = {row["measure"]: row for row in importance_rows(analysis)}
    assert rows["Relevance"]["sentences"] == 16
    assert rows["Relevance"]["error"] is None
    (row,) = courses(analysis)
    assert row["value"] == pytest.approx(0.76, abs=0.02)
    assert chosen_text(analysis) is None
    page = tmp_path / "report.html"
    assert cli.main(["report", str(EARLIER), f"--output={page}"]) == 0, capsys.readouterr().err
    assert "is not specialisation" in page.read_text(encoding="utf-8")
