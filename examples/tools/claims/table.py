"""claims.md: every claim, what each corpus says of it, and all runs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy

from claims import record, words
from claims.record import ATTENTIONS, Corpus, NotInRecord, Run
from claims.rules import CLAIMS, LEVEL, OPEN, Claim, Finding

QUICK = (
    "**This was a quick run, to see that everything works: its models are not trained, and nothing can be "
    "concluded from it.**"
)
SECONDS_OF_HOUR = 3600
RULES = Path(__file__).with_name("rules.md")

# In the order of the table
for paper in ("correia", "voita", "niculae_blondel", "baan", "beyond"):
    importlib.import_module(f"claims.{paper}")

# Of each claim what each corpus says, by its name
Findings = Sequence[tuple[Claim, Mapping[str, Finding]]]


def judged(corpora: Sequence[Corpus]) -> Findings:
    """Judge every claim on every corpus."""
    return [(c, {corpus.name: c.judged(corpus) for corpus in corpora}) for c in CLAIMS.values()]


def markdown(about: Mapping[str, Any], corpora: Sequence[Corpus]) -> str:
    """``claims.md``."""
    findings = judged(corpora)
    parts = [
        "# Do the papers' claims hold?",
        *([QUICK] if about["quick"] else []),
        _how(about, corpora),
        "## Verdicts",
        _overview(corpora, findings),
        by_chance(corpora, findings),
        "## How a verdict is reached",
        RULES.read_text("utf-8").rstrip(),
        "## What was found",
        "Behind a mean stands, in brackets, its interval of 95 % over seeds, and of some numbers each seed's.",
        *_details(findings),
        "## The runs",
        "Means over seeds; BLEU with each seed's. CPU hours are of all attempts, also those that were cut off. A training "
        "was ended by its length, or by patience: its loss fell no more. The loss is of the test set, in nats a token. How much the "
        "validation's fell in the last epoch tells how far from its end a training was only among those of one schedule, as the "
        "loss falls with the rate, which ends at 0. Density and α are means over heads of the encoder, of the decoder's self-attention, and of the "
        "cross-attention.",
        *(f"### {corpus.name}\n\n{_table(_run_rows(corpus))}" for corpus in corpora),
    ]
    return "\n\n".join(parts) + "\n"


def _how(about: Mapping[str, Any], corpora: Sequence[Corpus]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    rows = {
        "Date": about["date"],
        "Versions": f"{versions}, commit {about['commit']}",
        "Processor": f"{about['processor']}, {about['cores']} cores",
    }
    if "calls" in about:
        hours = f"{about['hours']:.1f} hours, {about['core_hours']:.1f} core hours"
        rows["Time"] = f"{hours}, in {about['calls']} calls"
    rows["Corpora"] = "; ".join(map(_extent, corpora))
    return "\n".join(f"- {name}: {value}" for name, value in rows.items())


def _extent(corpus: Corpus) -> str:
    """How many runs and which seeds a corpus has."""
    seeds = sorted({run.seed for run in corpus.runs})
    return f"{corpus.name} ({len(corpus.runs)} runs, seeds {', '.join(map(str, seeds))})"


def _overview(corpora: Sequence[Corpus], findings: Findings) -> str:
    names = [corpus.name for corpus in corpora]
    rows = [["claim", "source", *names, "agree"]]
    for claim, each in findings:
        verdicts = [each[name].decision.verdict for name in names]
        rows.append([claim.text, claim.source, *verdicts, _agreement(verdicts)])
    return _table(rows)


def _agreement(verdicts: Sequence[str]) -> str:
    """Whether corpora that decide say the same; a dash where fewer than two decide."""
    decided = [verdict for verdict in verdicts if verdict not in OPEN]
    if len(decided) < 2:
        return "–"
    return "yes" if len(set(decided)) == 1 else "no"


def by_chance(corpora: Sequence[Corpus], findings: Findings) -> str:
    """How many of the verdicts chance alone is to be expected to have made."""
    said = []
    for corpus in corpora:
        own = [each[corpus.name] for claim, each in findings if not claim.counted]
        tested = [found for found in own if found.test != "–"]
        decided = sum(found.decision.verdict not in OPEN for found in tested)
        said.append(
            f"of {corpus.name}, {decided} of {len(tested)} rows that were tested are decided, and chance "
            f"alone is to be expected to decide about {words.number(LEVEL * len(tested), 1)} if nothing of "
            "what the rows ask were so, and fewer the more of it is"
        )
    return (
        f"Rows are not corrected for one another. With tests at {LEVEL:g}, {'; '.join(said)}. Rows that count "
        "heads by a threshold are not among them."
    )


def _details(findings: Findings) -> list[str]:
    parts = []
    for paper, entries in groupby(findings, key=lambda entry: entry[0].paper):
        rows = [["claim, and what is measured", "values", "test", "verdict", "why"]]
        for claim, each in entries:
            claimed = f"**{claim.text}** ({claim.source})<br>{claim.measure}"
            columns = (
                {name: found.values for name, found in each.items()},
                {name: found.test for name, found in each.items()},
                {name: found.decision.verdict for name, found in each.items()},
                {name: found.decision.why for name, found in each.items()},
            )
            rows.append([claimed, *map(_cell, columns)])
        parts += [f"### {paper[0].upper()}{paper[1:]}", _table(rows)]
    return parts


def _cell(said: Mapping[str, str]) -> str:
    """What each corpus says, under one another; once where all say the same."""
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return "<br>".join(f"*{name}*: {text}" for name, text in said.items())


def _run_rows(corpus: Corpus) -> list[list[str]]:
    titles = "model, size, role, BLEU, chrF, loss, last epoch, updates, epochs, ended by, CPU hours"
    models, roles = (
        list(words.NAMES),
        [record.TRAINED, record.EQUALTIME, record.CONTINUED, record.PRUNED, record.SCRATCH],
    )

    def place(run: Run) -> tuple[Any, ...]:
        model = models.index(run.model) if run.model in models else len(models)
        return run.size, model, run.model, run.budget or "", roles.index(run.role)

    rows = [[*titles.split(", "), "parameters", "density", "α"]]
    for _, group in groupby(sorted(corpus.runs, key=lambda r: (*place(r), r.seed)), key=place):
        runs = list(group)
        one = runs[0]
        hours = [run.cpu_seconds / SECONDS_OF_HOUR for run in runs if run.cpu_seconds is not None]
        bleu = [run.bleu for run in runs]
        rows.append(
            [
                words.name_of(one.model),
                one.size,
                one.role if one.budget is None else f"{one.budget} {one.role}",
                _mean(bleu) + (f" {words.of_seeds(bleu)}" if len(runs) > 1 else ""),
                _mean([run.translation["chrf"] for run in runs]),
                _mean([run.analyzed["loss"] for run in runs], 3),
                _last_fall(runs),
                _mean([run.updates for run in runs], 0),
                _mean([run.epochs for run in runs], 1),
                ", ".join(dict.fromkeys(run.ended_by for run in runs)),
                _mean(hours, 1),
                _mean([run.parameters for run in runs], 0),
                _of_attentions(runs, "density"),
                _of_attentions(runs, "values", "alpha"),
            ]
        )
    return rows


def _mean(values: Sequence[float], digits: int = 2) -> str:
    return words.number(float(numpy.mean(values)), digits) if values else "–"


def _last_fall(runs: Sequence[Run]) -> str:
    """By how much the validation loss fell in the last epoch; a dash of a single one."""
    falls = [run.losses[-2] / run.losses[-1] - 1 for run in runs if len(run.losses) > 1]
    return f"{_mean([-100 * fall for fall in falls], 1)} %" if falls else "–"


def _of_attentions(runs: Sequence[Run], *path: str) -> str:
    """Means over heads and seeds; a dash of an attention whose heads have no such number."""
    shown = []
    for attention in ATTENTIONS:
        try:
            heads = [head for run in runs for head in run.each_head(attention)]
            shown.append(_mean([head.value(*path) for head in heads]))
        except NotInRecord:
            shown.append("–")
    return ", ".join(shown)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row has the titles."""
    titles, *others = ([" ".join(cell.replace("|", "\\|").split()) for cell in row] for row in rows)
    lines = [titles, ["---"] * len(titles), *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
