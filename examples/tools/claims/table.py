"""Write claims.md: every claim, what each corpus says on it, and all runs."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy

from claims import record, rules, words
from claims.degrees import bits
from claims.measures import of_attentions
from claims.niculae_blondel import MAPPINGS
from claims.record import Corpus, Run
from claims.rules import LEVEL, OPEN, Claim, Finding

QUICK = (
    "**This was a quick run, to see that everything works: its models are not trained, and nothing can be "
    "concluded from it.**"
)
RULES = Path(__file__).with_name("rules.md")
QUESTIONS = Path(__file__).with_name("claims.toml")
TOGETHER = "all corpora"
ROLES = (record.TRAINED, record.CONTINUED, record.PRUNED, record.SCRATCH)


def _claims() -> dict[str, Claim]:
    found = {}
    for module, entries in tomllib.loads(QUESTIONS.read_text("utf-8")).items():
        paper = entries.pop("paper")
        for key, entry in entries.items():
            where, _, name = entry.get("judge", f"{module}.{key}").rpartition(".")
            judge = getattr(importlib.import_module(f"claims.{where}"), name)
            given = dict(entry.get("with", {}))
            if "rule" in given:
                given["rule"] = getattr(rules, given["rule"])
            source = ", ".join([paper, *([entry["source"]] if "source" in entry else [])])
            for model in entry.get("models", [""]):
                own = {**given, **({"model": model} if model else {})}
                text, measure = (
                    entry[part].replace("{model}", MAPPINGS.get(model) or words.name_of(model))
                    for part in ("text", "measure")
                )
                found[".".join(filter(None, [module, key, model]))] = Claim(
                    *(paper, source, text, measure, partial(judge, **own)),
                    *(entry.get(kind, False) for kind in ("counted", "pooled")),
                )
    return found


CLAIMS = _claims()  # by names such as voita.few_heads.softmax
# For each claim, the finding on each corpus, by its name
Findings = Sequence[tuple[Claim, dict[str, Finding]]]


def markdown(about: Mapping[str, Any], corpora: Sequence[Corpus]) -> str:
    findings: Findings = [
        (claim, {corpus.name: claim.judged(corpus) for corpus in corpora})
        for claim in CLAIMS.values()
    ]
    for claim, each in findings:
        if claim.pooled and len(corpora) > 1:
            each[TOGETHER] = claim.judged(*corpora)
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
        "Means over seeds; BLEU with each seed's, and the penalty for brevity that is in it. A training "
        "was ended by its length, or by patience: its loss fell no more. The loss is of the test set, without label smoothing, in bits a token. How much the "
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
    extents = []
    for corpus in corpora:
        seeds = ", ".join(map(str, sorted({run.seed for run in corpus.runs})))
        on_gpu = sum(run.device == "gpu" for run in corpus.runs)
        of_these = f", {on_gpu} of them on a GPU" if on_gpu else ""
        extents.append(f"{corpus.name} ({len(corpus.runs)} runs{of_these}, seeds {seeds})")
    rows |= {"Corpora": "; ".join(extents), **({"Note": about["note"]} if "note" in about else {})}
    return "\n".join(f"- {name}: {value}" for name, value in rows.items())


def _overview(corpora: Sequence[Corpus], findings: Findings) -> str:
    names = [corpus.name for corpus in corpora]
    rows = [["claim", "source", *names, "together"]]
    for claim, each in findings:
        verdicts = [each[name].decision.verdict for name in names]
        decided = [verdict for verdict in verdicts if verdict not in OPEN]
        agree = "–" if len(decided) < 2 else "agree" if len(set(decided)) == 1 else "disagree"
        if TOGETHER in each:
            agree = each[TOGETHER].decision.verdict
        rows.append([claim.text, claim.source, *verdicts, agree])
    return _table(rows)


def by_chance(corpora: Sequence[Corpus], findings: Findings) -> str:
    """A text: how many verdicts are to be expected from chance alone."""
    sentences = []
    for corpus in corpora:
        own = [each[corpus.name] for claim, each in findings if not claim.counted]
        tested = [found for found in own if found.test != "–"]
        decided = sum(found.decision.verdict not in OPEN for found in tested)
        sentences.append(
            f"of {corpus.name}, {decided} of {len(tested)} rows that were tested are decided, and chance "
            f"alone is to be expected to decide about {words.number(LEVEL * len(tested), 1)} if nothing of "
            "what the rows ask were so, and fewer the more of it is"
        )
    return (
        f"Rows are not corrected for one another. With tests at {LEVEL:g}, {'; '.join(sentences)}. Rows that count "
        "heads by a threshold are not among them."
    )


def _details(findings: Findings) -> list[str]:
    parts = []
    for paper, entries in groupby(findings, key=lambda entry: entry[0].paper):
        rows = [["claim, and what is measured", "values", "test", "verdict", "why"]]
        for claim, each in entries:
            texts = [(one.values, one.test, *one.decision) for one in each.values()]
            cells = (
                _cell(dict(zip(each, column, strict=True))) for column in zip(*texts, strict=True)
            )
            rows.append([f"**{claim.text}** ({claim.source})<br>{claim.measure}", *cells])
        parts += [f"### {paper[0].upper()}{paper[1:]}", _table(rows)]
    return parts


def _cell(texts: Mapping[str, str]) -> str:
    """The texts of the corpora below each other, or one text if all are the same."""
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "<br>".join(f"*{name}*: {text}" for name, text in texts.items())


def _run_rows(corpus: Corpus) -> list[list[str]]:
    titles = "model, size, role, BLEU, brevity, chrF, loss, last epoch, updates, epochs, ended by"
    models = list(words.NAMES)

    def place(run: Run) -> tuple[Any, ...]:
        model = models.index(run.model) if run.model in models else len(models)
        return run.size, model, run.model, run.budget or "", ROLES.index(run.role)

    rows = [[*titles.split(", "), "parameters", "density", "α"]]
    for _, group in groupby(sorted(corpus.runs, key=lambda r: (*place(r), r.seed)), key=place):
        runs = list(group)
        one = runs[0]
        falls = [run.losses[-2] / run.losses[-1] - 1 for run in runs if len(run.losses) > 1]
        bleu = [run.bleu for run in runs]
        rows.append(
            [
                words.name_of(one.model),
                one.size,
                one.role if one.budget is None else f"{one.budget} {one.role}",
                _mean(bleu) + (f" {words.of_seeds(bleu)}" if len(runs) > 1 else ""),
                _mean([run.brevity for run in runs], 3),
                _mean([run.translation["chrf"] for run in runs]),
                _mean([bits(run) for run in runs], 3),
                f"{_mean([-100 * fall for fall in falls], 1)} %" if falls else "–",
                _mean([run.updates for run in runs], 0),
                _mean([run.epochs for run in runs], 1),
                ", ".join(dict.fromkeys(run.ended_by for run in runs)),
                _mean([run.parameters for run in runs], 0),
                of_attentions(runs, "density"),
                of_attentions(runs, "values", "alpha"),
            ]
        )
    return rows


def _mean(values: Sequence[float], digits: int = 2) -> str:
    return words.number(float(numpy.mean(values)), digits) if values else "–"


def _table(rows: Sequence[Sequence[str]]) -> str:
    titles, *others = ([" ".join(cell.replace("|", "\\|").split()) for cell in row] for row in rows)
    lines = [titles, ["---"] * len(titles), *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
