"""What sparsity and pruning do to speed: Correia et al. 2019, section 4, and beyond it.

Of the models of one seed, measured in turns: the noise is that of timing, so intervals are over
rounds. The verdicts are of this machine and of the software's versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from claims import words
from claims.correia import FIXED, LEARNED, SOFTMAX
from claims.record import ATTENTIONS, LARGE, PRUNED, TRAINED, Corpus, NotInRecord, Run
from claims.verdicts import Claim, Decision, Finding, claim, combined, finding, more_than

TRANSLATION, TRAINING = "sentences_per_second_rounds", "updates_per_second_rounds"
SPARSE = (FIXED, "sparsemax", LEARNED)
UNIMPORTANT = 0.02  # of the speed
PUBLISHED = {FIXED: 0.9, LEARNED: 0.75}  # of softmax's, Correia et al. 2019, section 4
BUDGET = "all24"


def _measured(corpus: Corpus) -> dict[str, Mapping[str, Any]]:
    """What was measured of each run, by its name."""
    models = (corpus.speed or {}).get("models")
    if not models:
        raise NotInRecord("speed was not measured")
    return {entry["run"]: entry for entry in models}


def _timed_run(corpus: Corpus, **wanted: Any) -> Run:
    models = _measured(corpus)
    runs = [run for run in corpus.of(size=LARGE, **wanted) if run.run in models]
    if not runs:
        said = ", ".join(f"{name} {value}" for name, value in wanted.items())
        raise NotInRecord(f"speed was not measured of a run with {said}")
    return runs[0]


def ratios(corpus: Corpus, what: str, one: Run, other: Run) -> list[float]:
    """The speed of a run, the other's being 1, in each round.

    Raises:
        NotInRecord: it was not measured of both, in as many rounds.
    """
    models = _measured(corpus)
    rounds = [models[run.run].get(what, []) for run in (one, other)]
    if not rounds[0] or len(rounds[0]) != len(rounds[1]):
        raise NotInRecord(f"{what} was not measured of both {one.run} and {other.run}")
    return [float(a) / float(b) for a, b in zip(*rounds, strict=True)]


def _against_softmax(corpus: Corpus, what: str, models: Iterable[str]) -> dict[str, list[float]]:
    softmax = _timed_run(corpus, model=SOFTMAX, role=TRAINED)
    return {
        model: ratios(corpus, what, _timed_run(corpus, model=model, role=TRAINED), softmax)
        for model in models
    }


def _densities(corpus: Corpus) -> str:
    shown = {}
    for model in SPARSE:
        density = _measured(corpus)[_timed_run(corpus, model=model, role=TRAINED).run]["density"]
        values = [density.get(attention) for attention in ATTENTIONS]
        shown[words.name_of(model)] = ", ".join(
            "–" if value is None else words.number(float(value)) for value in values
        )
    return words.listed(shown)


def _timing(decision: Decision) -> Decision:
    return Decision(decision.verdict, decision.why.replace("one seed", "one round"))


def _sparse_is_faster(corpus: Corpus, what: str, unit: str) -> Finding:
    found = _against_softmax(corpus, what, SPARSE)
    decisions = {
        words.name_of(model): _timing(
            more_than([r - 1 for r in each], margin=UNIMPORTANT, against="1")
        )
        for model, each in found.items()
    }
    return _finding(
        f"{unit}, those of softmax being 1; {UNIMPORTANT:.0%} is of no importance",
        found,
        f"interval over rounds; densities of encoder, decoder, cross: {_densities(corpus)}",
        combined(decisions),
    )


def _finding(
    measure: str, found: Mapping[str, Sequence[float]], test: str, decision: Decision
) -> Finding:
    numbers: dict[str, float] = {}
    for model, each in found.items():
        numbers |= words.interval_numbers(model, each)
    shown = {words.name_of(model): words.over_seeds(each) for model, each in found.items()}
    return finding(measure, words.listed(shown), test, decision, numbers)


@claim(
    Claim(
        "correia-speed",
        "Correia et al. 2019, 4",
        "Training with 1.5-entmax runs at 90 % or more of the speed of softmax, with learned α at 75 %.",
    )
)
def published_overhead(corpus: Corpus) -> Finding:
    """The paper's were GPUs."""
    found = _against_softmax(corpus, TRAINING, PUBLISHED)
    decisions = {
        words.name_of(model): _timing(
            more_than([r - share for r in found[model]], against=f"{share:g}")
        )
        for model, share in PUBLISHED.items()
    }
    measure = "updates a second, those of softmax being 1"
    return _finding(measure, found, "interval over rounds", combined(decisions))


@claim(
    Claim(
        "beyond-speed-translation",
        "beyond the papers",
        "Sparse attention translates faster here than softmax, which has no kernel for a step of decoding.",
    )
)
def sparse_translates_faster(corpus: Corpus) -> Finding:
    """What has a weight of zero is left out; how much the kernel does without, the denser model tells."""
    return _sparse_is_faster(corpus, TRANSLATION, "sentences a second")


@claim(
    Claim(
        "beyond-speed-training",
        "beyond the papers",
        "Sparse attention makes training faster than softmax.",
    )
)
def sparse_trains_faster(corpus: Corpus) -> Finding:
    """Its gradient has zeros, too."""
    return _sparse_is_faster(corpus, TRAINING, "updates a second")


@claim(
    Claim(
        "beyond-speed-pruned",
        "beyond the papers",
        "A model pruned to 24 of 72 heads translates faster than the whole one.",
    )
)
def pruned_translates_faster(corpus: Corpus) -> Finding:
    """Of each mapping that was pruned."""
    found, decisions = {}, {}
    for model in (SOFTMAX, LEARNED):
        pruned = _timed_run(corpus, model=model, role=PRUNED, budget=BUDGET)
        whole = _timed_run(corpus, model=model, role=TRAINED)
        found[model] = ratios(corpus, TRANSLATION, pruned, whole)
        faster = [ratio - 1 for ratio in found[model]]
        decision = more_than(faster, margin=UNIMPORTANT, against="1")
        decisions[words.name_of(model)] = _timing(decision)
    measure = f"sentences a second, those of the whole model being 1; {UNIMPORTANT:.0%} is of no importance"
    return _finding(measure, found, "interval over rounds", combined(decisions))
