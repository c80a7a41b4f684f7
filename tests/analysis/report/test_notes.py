"""What a report says about the origin of its numbers."""

import pytest

from fairseq_entmax.analysis.document.summary import as_table
from fairseq_entmax.analysis.report.notes import importance_rows
from tests.analysis.report.synthetic import heads_of


def test_importance_has_the_models_number_of_sentences_and_largest_error(small):
    model = small["models"][1]
    model["importance_sentences"] = {"relevance": 96, "gradient": 1000}
    for head in heads_of(model):
        head["standard_errors"] = {"relevance": 0.002 + head["head"] / 1000, "gradient": None}
    rows = {(row["model"], row["measure"]): row for row in importance_rows(small)}
    relevance = rows[1, "Relevance"]
    assert (relevance["sentences"], relevance["data"]) == (96, 1000)
    assert relevance["error"] == pytest.approx(0.004)
    assert rows[1, "Gradient"]["error"] is None


def test_a_missing_record_is_mentioned_in_the_table(small):
    assert "jsonl" not in as_table(small)
    model = small["models"][2]
    model["records"] = {}
    text = as_table(small).splitlines()[-1]
    assert "alpha.jsonl" in text
    assert model["checkpoint"] in text
