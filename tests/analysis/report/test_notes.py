"""What a report says about the origin of its numbers."""

import pytest

from fairseq_entmax.analysis.document.summary import as_table
from fairseq_entmax.analysis.head_order import as_text, rank_correlation
from fairseq_entmax.analysis.report.notes import courses, importance_rows
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


@pytest.mark.parametrize(
    ("start", "end", "value", "words"),
    [
        ([1.0, 1.1, 1.2, 1.3, 1.4], [1.11, 1.21, 1.31, 1.41, 1.51], 1, "is not specialisation"),
        ([1.0, 1.1, 1.2, 1.3, 1.4], [1.21, 1.11, 1.51, 1.31, 1.41], 0.6, "remains in part"),
        ([1.0, 1.1, 1.2, 1.3, 1.4], [1.31, 1.11, 1.51, 1.21, 1.26], -0.1, "differences are learned"),
        ([1.0, 1.1, 1.2, 1.3, 1.4], [1.51, 1.41, 1.31, 1.21, 1.11], -1, "was reversed"),
        ([1.3, 1.1, 1.2, 1.4], [1.00004, 1.00001, 1.00003, 1.5], 0.7745966,
         "3 of 4 heads end at the same alpha, 1 to within 0.001"),
        ([1.0, 1.1], [1.2, 1.3], None, "No correlation: at least 3 heads must learn it (here: 2)."),
    ],
)  # fmt: skip
def test_the_page_says_whether_alpha_follows_its_start(small, start, end, value, words):
    lines = [
        {"update": 100 * place, "values": {"cross": {"0": own, "1": [1 + place / 2] * 4}}}
        for place, own in enumerate((start, end))
    ]
    small["models"][2]["records"] = {"alpha": lines}
    for layer in small["models"][2]["attentions"]:
        if layer["layer"] == 1:
            layer["learned"] = []  # a fixed alpha that rose during training
    (row,) = courses(small)
    assert row["value"] == (value if value is None else pytest.approx(value))
    assert row["attentions"] == {"cross": row["value"]}
    assert (row["model"], row["first"], row["last"], row["heads"]) == (2, 0, 100, len(start))
    assert words in row["text"]
    command = as_text(
        rank_correlation(
            [{**one, "values": {"cross": {"0": one["values"]["cross"]["0"]}}} for one in lines]
        )
    )
    for conclusion in ("largely keep", "heads end at the same"):
        assert (conclusion in command) == (conclusion in row["text"])
    for layer in small["models"][2]["attentions"]:
        layer["learned"] = []
    assert courses(small) == []


def test_a_missing_record_is_mentioned_on_the_page_and_in_the_table(small):
    assert "jsonl" not in as_table(small)
    model = small["models"][2]
    model["records"] = {}
    (row,) = courses(small)
    assert (row["model"], row["name"]) == (2, "alpha")
    for text in (row["text"], as_table(small).splitlines()[-1]):
        assert "alpha.jsonl" in text
        assert model["checkpoint"] in text
