"""examples/tools/rouge_table.py: ROUGE of several models side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import rouge_table

TYPES = ("rouge1", "rouge2", "rougeL")


def document(values: tuple[float, float, float], other: float | None = None) -> str:
    """What fairseq-entmax rouge writes, as far as the table reads it; `other` is what the second has."""
    scores = {
        kind: {"f1": {"value": value, "low": value - 1, "high": value + 1}}
        for kind, value in zip(TYPES, values, strict=True)
    }
    compared = None
    if other is not None:
        compared = {
            kind: {
                "value": value + other,
                "change": other,
                "low": other - 1,
                "high": other + 1,
                "p_bootstrap": 0.0125,
            }
            for kind, value in zip(TYPES, values, strict=True)
        }
    return json.dumps({"settings": {"statistic": "f1"}, "compared": compared, **scores})


def test_the_first_model_has_its_interval_and_others_what_they_have_more(tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(document((40.0, 20.0, 35.0)))
    second.write_text(document((40.0, 20.0, 35.0), other=-2.5))
    rows = rouge_table.table(["copy", "no-copy"], [first, second])
    assert rows[1] == ["copy", "40.00", "20.00", "35.00", "", "34.00 to 36.00", ""]
    assert rows[2] == ["no-copy", "37.50", "17.50", "32.50", "-2.50", "-3.50 to -1.50", "0.013"]


def test_columns_are_aligned_for_people(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(document((40.0, 5.0, 35.0)))
    header, row = rouge_table.aligned(rouge_table.table(["copy"], [path])).split("\n")[:2]
    assert header.index("ROUGE-2") + len("ROUGE-2") == row.index(" 5.00") + len(" 5.00")


@pytest.mark.parametrize("content", ["", "{}", '{"compared": null, "settings": 3}'])
def test_another_file_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"{path} is not of fairseq-entmax rouge: remove it"):
        rouge_table.table(["copy"], [path])


def test_as_many_names_as_files_are_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--names has 2 names for 1 files"):
        rouge_table.table(["a", "b"], [tmp_path / "a.json"])
