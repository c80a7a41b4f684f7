"""The table of heads as a file, CSV for other programs."""

from __future__ import annotations

import csv
import io
from typing import Any

from fairseq_entmax.analysis.report.payload import measures_of, role_words


def heads_csv(analysis: dict[str, Any]) -> str:
    """A line for each head: its place, mapping, roles, and every number that stands alone."""
    measures = [measure for measure in measures_of(analysis) if not measure.group]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    names = [measure.name for measure in measures]
    table.writerow(["model", "attention", "layer", "head", "mapping", "roles", *names])
    for model in analysis["models"]:
        for layer in model["attentions"]:
            for head in layer["heads"]:
                place = [model["name"], layer["attention"], layer["layer"], head["head"]]
                roles = "; ".join(role_words(head, layer, analysis))
                values = [measure.of(head, layer) for measure in measures]
                table.writerow([*place, layer["mapping"], roles, *values])
    return text.getvalue()
