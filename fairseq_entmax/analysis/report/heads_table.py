"""The table of heads as files: CSV for other programs, LaTeX for a paper.

The page writes the same two from what its list shows (``template/tables.js``).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from fairseq_entmax.analysis.report.ablation_table import Ablation
from fairseq_entmax.analysis.report.decimals import decimal
from fairseq_entmax.analysis.report.payload import page_data

DIGITS = 3
# What LaTeX would take for a command, and signs that its fonts have in formulas only
LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "−": r"$-$",
    "–": r"--",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "→": r"$\to$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "λ": r"$\lambda$",
    "Δ": r"$\Delta$",
}
_SPECIAL = re.compile("|".join(map(re.escape, LATEX)))


def heads_csv(analysis: dict[str, Any], ablations: Sequence[Ablation] = ()) -> str:
    """A line for each head: its place, mapping and roles, and every number that stands alone.

    A number that a head does not have is empty.
    """
    data = page_data(analysis, (), None, ablations)
    measures = [measure for measure in data["measures"] if not measure["group"]]
    names = [measure["name"] for measure in measures]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["model", "attention", "layer", "head", "mapping", "roles", *names])
    for model, layer, head in _heads(data):
        place = [model, layer["attention"], layer["layer"], head["head"], layer["mapping"]]
        values = [_value(head, measure) for measure in measures]
        table.writerow([*place, "; ".join(head["roles"]), *values])
    return text.getvalue()


def heads_latex(analysis: dict[str, Any], ablations: Sequence[Ablation] = ()) -> str:
    """A ``tabular`` with the rules of booktabs: a row for each head, a rule between models.

    Numbers are those of the page's list of heads, with three decimals; none is a dash.
    """
    data = page_data(analysis, (), None, ablations)
    measures = [measure for measure in data["measures"] if measure["isMain"]]
    titles = ["Model", "Attention", "Layer", "Head", *(one["title"] for one in measures), "Role"]
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{llrr{'r' * len(measures)}l}}",
        r"\toprule",
        _row(map(escaped, titles)),
    ]
    last = None
    for model, layer, head in _heads(data):
        if model != last:
            lines.append(r"\midrule")
            last = model
        numbers = [_number(_value(head, one)) for one in measures]
        texts = map(escaped, (model, layer["attention"]))
        roles = escaped("; ".join(head["roles"]))
        lines.append(_row([*texts, str(layer["layer"]), str(head["head"]), *numbers, roles]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escaped(text: str) -> str:
    """Text as LaTeX prints it, in a cell too: behind ``\\\\`` a ``[`` or ``*`` starts an argument."""
    printed = _SPECIAL.sub(lambda match: LATEX[match[0]], text)
    return f"{{}}{printed}" if printed.lstrip().startswith(("[", "*")) else printed


def _value(head: dict[str, Any], measure: dict[str, Any]) -> float | None:
    """As the page finds it: what stands among the values, or in its own place."""
    if measure["name"] in head["values"]:
        return head["values"][measure["name"]]
    value: Any = head
    for key in measure["place"]:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _number(value: float | None) -> str:
    return escaped(decimal(value, DIGITS).replace("-", "−"))


def _row(cells: Any) -> str:
    return " & ".join(cells) + r" \\"


def _heads(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for layer in data["layers"]:
        for head in layer["heads"]:
            yield data["models"][layer["model"]]["name"], layer, head
