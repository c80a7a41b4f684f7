"""claims.md and findings.json: every claim, what each corpus says of it, and all runs."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy

from claims import words
from claims.record import (
    ATTENTIONS,
    CONTINUED,
    EQUALTIME,
    PRUNED,
    SCRATCH,
    TRAINED,
    Corpus,
    NotInRecord,
    Record,
    Run,
)
from claims.verdicts import CLAIMS, LEVEL, OPEN, RULES, Claim, Finding, judge

FORMAT, VERSION = "fairseq-entmax-findings", 1
# In the order of the table
MODULES = (
    "correia",
    "correia_layers",
    "correia_heads",
    "voita",
    "voita_relevance",
    "voita_roles",
    "voita_survivors",
    "voita_pruning",
    "attention_papers",
    "niculae_blondel",
    "baan_removal",
    "baan_sparse",
    "beyond",
    "speed",
)
QUICK = (
    "**This was a quick run, to see that everything works: its models are not trained, and nothing can be "
    "concluded from it.**"
)
SECONDS_OF_HOUR = 3600
DIGITS = 6  # significant, in findings.json

# Of each claim, by its key, what each corpus says, by its name
Findings = Mapping[str, Mapping[str, Finding]]


def load_claims() -> None:
    """Import the modules that register claims."""
    for name in MODULES:
        if importlib.util.find_spec(f"claims.{name}") is not None:
            importlib.import_module(f"claims.{name}")


def judged(record: Record) -> Findings:
    """Judge every claim on every corpus."""
    load_claims()
    return {
        key: {corpus.name: judge(key, corpus) for corpus in record.corpora} for key in _in_order()
    }


def _in_order() -> list[str]:
    """The keys of all claims: those of a paper together, papers and modules in order.

    Not as they were registered, which depends on what was imported first.
    """
    places = {f"claims.{name}": place for place, name in enumerate(MODULES)}
    keys = sorted(CLAIMS, key=lambda key: places.get(CLAIMS[key][1].__module__, len(places)))
    papers = list(dict.fromkeys(_paper(CLAIMS[key][0]) for key in keys))
    return sorted(keys, key=lambda key: papers.index(_paper(CLAIMS[key][0])))


def claims_document(record: Record, findings: Findings) -> dict[str, Any]:
    """``findings.json``; a number that is none, such as an interval of one seed, is null."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "record": dict(record.about),
        "claims": [
            {
                "key": key,
                "source": CLAIMS[key][0].source,
                "claim": CLAIMS[key][0].text,
                "findings": {name: _as_json(finding) for name, finding in each.items()},
            }
            for key, each in findings.items()
        ],
    }


def _as_json(finding: Finding) -> dict[str, Any]:
    numbers = {name: _rounded(float(value)) for name, value in finding.numbers.items()}
    return {**vars(finding), "numbers": numbers}


def _rounded(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def markdown(record: Record, findings: Findings) -> str:
    """``claims.md``."""
    parts = [
        "# Do the papers' claims hold?",
        *([QUICK] if record.about["quick"] else []),
        _how(record),
        "## Verdicts",
        _overview(record, findings),
        by_chance(record, findings),
        "## How a verdict is reached",
        RULES,
        "## What was found",
        "Behind a mean stands, in brackets, its interval of 95 % over seeds, and of some numbers each seed's.",
        *_details(findings),
        "## The runs",
        "Means over seeds; BLEU with each seed's. CPU hours are of all attempts, also those that were cut off. A training "
        "was ended by its length, or by patience: its loss fell no more. The loss is of the test set, in nats a token. How much the "
        "validation's fell in the last epoch tells how far from its end a training was only among those of one schedule, as the "
        "loss falls with the rate, which ends at 0. Density and α are means over heads of the encoder, of the decoder's self-attention, and of the "
        "cross-attention.",
        *_runs(record),
    ]
    return "\n\n".join(parts) + "\n"


def _how(record: Record) -> str:
    about = record.about
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    commit = f", commit {about['commit']}" if about.get("commit") else ""
    calls = "one call" if about["calls"] == 1 else f"{about['calls']} calls"
    rows = {
        "Date": about["date"],
        "Versions": f"{versions}{commit}",
        "Processor": f"{about['processor']}, {about['cores']} cores",
        "Time": f"{about['hours']:.1f} hours, {about['core_hours']:.1f} core hours, in {calls}",
        "Corpora": "; ".join(map(_extent, record.corpora)),
    }
    for corpus in record.corpora:
        if corpus.left_out:
            rows[
                f"Left out of {corpus.name}, being of other seeds or models than the record names"
            ] = ", ".join(corpus.left_out)
    return "\n".join(f"- {name}: {value}" for name, value in rows.items())


def _extent(corpus: Corpus) -> str:
    """How many runs and which seeds a corpus has."""
    seeds = sorted({run.seed for run in corpus.runs})
    if not seeds:
        return f"{corpus.name} (no runs)"
    which = "seed" if len(seeds) == 1 else "seeds"
    return f"{corpus.name} ({len(corpus.runs)} runs, {which} {', '.join(map(str, seeds))})"


def _overview(record: Record, findings: Findings) -> str:
    corpora = [corpus.name for corpus in record.corpora]
    agreement = ["agree"] if len(corpora) > 1 else []
    rows = [["claim", "source", *corpora, *agreement]]
    for key, each in findings.items():
        verdicts = [each[name].verdict for name in corpora]
        agree = [_agreement(verdicts)] if agreement else []
        what = CLAIMS[key][0]
        rows.append([what.text, what.source, *verdicts, *agree])
    return _table(rows)


def by_chance(record: Record, findings: Findings) -> str:
    """How many of the verdicts chance alone is to be expected to have made."""
    said = []
    for corpus in record.corpora:
        if len({run.seed for run in corpus.runs}) < 2:
            said.append(
                f"of {corpus.name}, no row but those of speed can be decided without a second seed"
            )
            continue
        own = [each[corpus.name] for each in findings.values()]
        tested = [one for one in own if one.tested and one.test != "–"]
        decided = sum(1 for one in tested if one.verdict not in OPEN)
        said.append(
            f"of {corpus.name}, {decided} of {len(tested)} rows that were tested are decided, and chance "
            f"alone is to be expected to decide about {words.number(LEVEL * len(tested), 1)} if nothing of "
            "what the rows ask were so, and fewer the more of it is"
        )
    return (
        f"Rows are not corrected for one another. With tests at {LEVEL:g}, {'; '.join(said)}. Rows that count "
        "heads by a threshold are not among them."
    )


def _agreement(verdicts: Sequence[str]) -> str:
    """Whether corpora that decide say the same; a dash where fewer than two decide."""
    decided = [verdict for verdict in verdicts if verdict not in OPEN]
    if len(decided) < 2:
        return "–"
    return "yes" if len(set(decided)) == 1 else "no"


def _details(findings: Findings) -> list[str]:
    parts = []
    sources = groupby(findings.items(), key=lambda entry: _paper(CLAIMS[entry[0]][0]))
    for paper, entries in sources:
        rows = [["claim, and what is measured", "values", "test", "verdict", "why"]]
        for key, each in entries:
            what = CLAIMS[key][0]
            measures = list(dict.fromkeys(f.measure for f in each.values() if f.measure != "–"))
            claimed = f"**{what.text}** ({what.source})"
            fields = (_cell(each, field) for field in ("values", "test", "verdict", "why"))
            rows.append(["<br>".join([claimed, *measures]), *fields])
        parts += [f"### {paper}", _table(rows)]
    return parts


def _paper(claim: Claim) -> str:
    """Authors and year: what stands before the section."""
    paper = claim.source.split(";")[0].split(",")[0].strip()
    return paper[:1].upper() + paper[1:]


def _cell(each: Mapping[str, Finding], field: str) -> str:
    """What each corpus says, under one another; once where all say the same."""
    said = {name: str(getattr(finding, field)) for name, finding in each.items()}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return "<br>".join(f"*{name}*: {text}" for name, text in said.items())


def _runs(record: Record) -> list[str]:
    parts = []
    for corpus in record.corpora:
        if corpus.runs:
            parts += [f"### {corpus.name}", _table(_run_rows(corpus))]
    return parts


def _run_rows(corpus: Corpus) -> list[list[str]]:
    titles = ["model", "size", "role", "BLEU", "chrF", "loss", "last epoch"]
    titles += ["updates", "epochs", "ended by"]
    rows = [[*titles, "CPU hours", "parameters", "density", "α"]]

    def kind(run: Run) -> tuple[str, str, str]:
        return run.size, run.model, run.role if run.budget is None else f"{run.budget} {run.role}"

    models, roles = list(words.NAMES), [TRAINED, EQUALTIME, CONTINUED, PRUNED, SCRATCH]

    def place(run: Run) -> tuple[Any, ...]:
        model = models.index(run.model) if run.model in models else len(models)
        role = roles.index(run.role) if run.role in roles else len(roles)
        return run.size, model, run.model, run.budget or "", role, run.role, run.seed

    ordered = sorted(corpus.runs, key=place)
    for (size, model, role), group in groupby(ordered, key=kind):
        runs = list(group)
        rows.append(
            [
                words.name_of(model),
                size,
                role,
                _each([run.bleu for run in runs]),
                _mean([float(run.translation["chrf"]) for run in runs]),
                _mean(
                    [float(loss) for run in runs if (loss := run.analyzed.get("loss")) is not None],
                    3,
                ),
                _last_fall(runs),
                _mean([run.updates for run in runs], 0),
                _mean([run.epochs for run in runs], 1),
                ", ".join(dict.fromkeys(run.ended_by for run in runs)),
                _mean([run.cpu_seconds / SECONDS_OF_HOUR for run in runs], 1),
                _mean([run.parameters for run in runs], 0),
                _of_attentions(runs, "density"),
                _of_attentions(runs, "values", "alpha"),
            ]
        )
    return rows


def _mean(values: Sequence[float], digits: int = 2) -> str:
    return words.number(float(numpy.mean(values)), digits) if values else "–"


def _last_fall(runs: Sequence[Run]) -> str:
    """By how much the validation loss fell in the last epoch; a dash where that is not known."""
    try:
        return f"{words.number(-100 * float(numpy.mean([run.last_fall for run in runs])), 1)} %"
    except NotInRecord:
        return "–"


def _each(values: Sequence[float]) -> str:
    seeds = f" ({', '.join(words.number(value) for value in values)})" if len(values) > 1 else ""
    return f"{_mean(values)}{seeds}"


def _of_attentions(runs: Sequence[Run], *path: str) -> str:
    """Means over heads and seeds; a dash of an attention whose heads have no such number."""
    shown = []
    for attention in ATTENTIONS:
        try:
            heads = [head for run in runs for head in run.each_head(attention)]
            values = [head.value(*path) for head in heads]
        except NotInRecord:
            values = []
        shown.append(_mean(values) if values else "–")
    return ", ".join(shown)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row has the titles."""
    titles, *others = ([_escaped(cell) for cell in row] for row in rows)
    lines = [titles, ["---"] * len(titles), *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(cell: str) -> str:
    return " ".join(cell.replace("|", "\\|").split())


def as_text(document: Mapping[str, Any]) -> str:
    """JSON as findings.json has it."""
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
