"""The report's notes on how its numbers were obtained."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.measures import importance_measures

Row = dict[str, Any]


def importance_rows(analysis: dict[str, Any]) -> list[Row]:
    """How many sentences relevance and gradient are based on in each model, and their errors."""
    rows = []
    for measure in importance_measures():
        for number, model in enumerate(analysis["models"]):
            heads = [head for layer in model["attentions"] for head in layer["heads"]]
            if all(head.get(measure.name) is None for head in heads):
                continue
            errors = [head["standard_errors"][measure.name] for head in heads]
            rows.append(
                {
                    "model": number,
                    "measure": measure.title,
                    "sentences": model["importance_sentences"][measure.name],
                    "data": analysis["data"]["sentences"],
                    "error": max((one for one in errors if one is not None), default=None),
                }
            )
    return rows
