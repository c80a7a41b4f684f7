"""The figure of docs/sparse_by_degrees.md: loss and density of each run, with and without a rise."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from claims.degrees import bits
from claims.measures import mean_of
from claims.record import ATTENTIONS, TRAINED, Corpus
from claims.words import RISING, name_of

COLOURS = {
    "softmax": "#666666",
    "entmax15": "#0072B2",
    "entmax": "#009E73",
    "sparsemax": "#D55E00",
    "fusedmax": "#CC79A7",
    "oscarmax": "#E69F00",
    "entmax-tv": "#56B4E9",
}
# Runs far worse than the best of a setting are not in the figure; the text below it names them
MOST_ABOVE = 0.4
FROM_THE_START, RISES = "sparse from the start", "sparse by degrees"


def points(corpora: Iterable[Corpus]) -> list[dict[str, Any]]:
    """Runs with one mapping in all attentions, in settings where some α rose for half the updates."""
    found: list[dict[str, Any]] = []
    for corpus in corpora:
        for run in corpus.runs:
            rising = RISING.fullmatch(run.model)
            mapping = rising[2] if rising else run.model
            is_shown = run.role == TRAINED and mapping in COLOURS
            if is_shown and (rising is None or rising[1] == "50"):
                found.append(
                    {
                        "setting": f"{corpus.name}, {run.size}",
                        "mapping": name_of(mapping),
                        "rise": RISES if rising else FROM_THE_START,
                        "density": mean_of(ATTENTIONS, "density")(run),
                        "bits": bits(run),
                    }
                )
    shown = {one["setting"] for one in found if one["rise"] == RISES}
    most = {
        setting: MOST_ABOVE + min(one["bits"] for one in found if one["setting"] == setting)
        for setting in shown
    }
    return [one for one in found if one["bits"] < most.get(one["setting"], 0)]


def draw(corpora: Iterable[Corpus], target: Path) -> None:
    """Write the figure as SVG or PNG, by the name of the file. Needs the extra "report"."""
    import altair

    shown = points(corpora)
    names = {one["mapping"] for one in shown}
    scale = {name_of(one): colour for one, colour in COLOURS.items() if name_of(one) in names}
    chart = (
        altair.Chart(altair.Data(values=shown), width=260, height=200)
        .mark_point(filled=True, size=70, opacity=0.8)
        .encode(
            x=altair.X("density:Q", title="keys with a weight, mean over heads").scale(
                domain=[0, 1]
            ),
            y=altair.Y("bits:Q", title="loss of the test set, bits a token").scale(zero=False),
            color=altair.Color("mapping:N", title=None).scale(
                domain=[*scale], range=[*scale.values()]
            ),
            shape=altair.Shape("rise:N", title=None, legend=altair.Legend(labelLimit=300)).scale(
                domain=[FROM_THE_START, RISES], range=["triangle-up", "circle"]
            ),
        )
        .facet(column=altair.Column("setting:N", title=None))
        .resolve_scale(y="independent")
        .configure(padding={"left": 5, "top": 5, "bottom": 5, "right": 45})  # for wider letters
    )
    chart.save(str(target))
