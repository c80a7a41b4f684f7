"""Correia, Niculae and Martins 2019, section 5.2: roles of heads. Runs are those of the large size."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy

from claims import words
from claims.correia import PLAIN, SOFTMAX, SPARSE
from claims.record import DECODER_SELF, ENCODER_SELF, Corpus, Head, NotInRecord, Run
from claims.statistics import combined_p, mann_whitney
from claims.verdicts import (
    FAILS,
    UNDECIDED,
    Claim,
    Decision,
    Finding,
    claim,
    combined,
    exists,
    finding,
    holm,
    more_than,
    negated,
    undecided,
)

MODELS = (SOFTMAX, *SPARSE)
MERGES = 0.8  # the paper's "over 80 %"
MARKS = 0.1  # more weight on the mark of a question than on that of a statement


def positional(run: Run, *offsets: int) -> Iterator[Head]:
    """Heads of the encoder and the decoder with a positional role at one of these offsets."""
    for head in run.each_head(ENCODER_SELF, DECODER_SELF):
        role = head.measures.get("positional")
        if role is not None and role["offset"] in offsets:
            yield head


def _by_model(corpus: Corpus) -> tuple[dict[str, list[Run]], dict[str, Decision]]:
    """The runs of each model that there is, and of each other one that it is not there.

    What is said of each of the models is refuted by one of them, whether the others are there or not.

    Raises:
        NotInRecord: there is none of them.
    """
    runs, missing = {}, {}
    for model in MODELS:
        try:
            runs[model] = corpus.need(model=model, **PLAIN)
        except NotInRecord as reason:
            missing[words.name_of(model)] = Decision(UNDECIDED, f"{reason}")
    if not runs:
        corpus.need(model=MODELS[0], **PLAIN)
    return runs, missing


def _nearest(run: Run, offset: int) -> tuple[float, str]:
    """The largest share of the queries that look there most, over the heads of self-attention.

    The decoder does not see the tokens that follow.
    """
    return max(
        (head.value("offsets", "share", str(offset)), head.name)
        for head in run.each_head(ENCODER_SELF, *([DECODER_SELF] if offset < 0 else []))
    )


@claim(
    Claim(
        "correia-positional",
        "Correia et al. 2019, 5.2",
        "Each model has heads for the previous token and for the next.",
    )
)
def positional_heads(corpus: Corpus) -> Finding:
    """As the analysis says: 90 % of the queries look there most."""
    by_model, decisions = _by_model(corpus)
    values, nearest = {}, {}
    numbers: dict[str, float] = {}
    for model, runs in by_model.items():
        for offset in (-1, 1):
            counts = [sum(1 for _ in positional(run, offset)) for run in runs]
            name = f"{words.name_of(model)} at {words.number(offset, 0, signed=True)}"
            decisions[name] = exists(counts)
            values[name] = words.counts(counts)
            share, head = max(_nearest(run, offset) for run in runs)
            if not all(counts):
                nearest[name] = f"{share:.0%} ({head})"
            numbers |= {f"{model} {offset} fewest": min(counts), f"{model} {offset} nearest": share}
    return finding(
        "heads of encoder-self and decoder-self whose largest weight is at one offset in 90 % of the "
        "queries, of each seed",
        words.listed(values),
        f"each seed has one; the nearest: {words.listed(nearest) or '–'}",
        combined(decisions),
        numbers,
        tested=False,
    )


@claim(
    Claim(
        "correia-positional-confidence",
        "Correia et al. 2019, 5.2",
        "Positional heads are more confident in sparse models than in softmax.",
    )
)
def positional_confidence(corpus: Corpus) -> Finding:
    """Medians of each seed, of heads at −1 and at +1; each offset is compared with itself."""
    measure = "median weight at the offset of positional heads at −1 or +1, less that of softmax"
    decisions, values, tests = {}, {}, {}
    numbers: dict[str, float] = {}
    p_values = {}
    for model in SPARSE:
        pairs = corpus.pairs({"model": model}, {"model": SOFTMAX}, **PLAIN)
        each, p = _more_confident(pairs)
        name = words.name_of(model)
        if not each:
            return undecided(measure, f"no seed has such heads both in softmax and in {name}")
        decisions[name] = more_than(each)
        values[name] = words.over_seeds(each, 3, signed=True)
        p_values[name] = p
        numbers |= {**words.interval_numbers(model, each), f"{model} p": p}
    for name, p in zip(p_values, holm(list(p_values.values())), strict=True):
        tests[name] = words.p_value(p)
    return finding(
        measure,
        words.listed(values),
        f"interval over seeds; Mann-Whitney over heads, seeds combined, Holm: {words.listed(tests)}",
        combined(decisions),
        numbers,
    )


def _more_confident(pairs: list[tuple[Run, Run]]) -> tuple[list[float], float]:
    """Differences of medians of each seed that has such heads, and p over heads."""
    each, p_values = [], []
    for one, other in pairs:
        gains = []
        for offset in (-1, 1):
            ones, others = (_confidences(run, offset) for run in (one, other))
            if ones and others:
                gains.append(float(numpy.median(ones) - numpy.median(others)))
                p_values.append(mann_whitney(ones, others))
        if gains:
            each.append(float(numpy.mean(gains)))
    return each, combined_p(p_values) if p_values else 1.0


def _confidences(run: Run, offset: int) -> list[float]:
    return [head.value("positional", "confidence") for head in positional(run, offset)]


def _best(run: Run, score: Callable[[Head], float]) -> tuple[float, str]:
    return max((score(head), head.name) for head in run.each_head(ENCODER_SELF))


def _merging(head: Head) -> float:
    return head.value("subword_merging", "all")


@claim(
    Claim(
        "correia-merging",
        "Correia et al. 2019, 5.2",
        "Sparse models have heads that merge subwords with a score above 80 %, softmax has none.",
    )
)
def merging_heads(corpus: Corpus) -> Finding:
    """Of the encoder, over all words."""
    by_model, decisions = _by_model(corpus)
    counts, best = {}, {}
    numbers: dict[str, float] = {}
    for model, runs in by_model.items():
        found = [sum(_merging(h) > MERGES for h in run.each_head(ENCODER_SELF)) for run in runs]
        counts[model] = found
        score, head = max(_best(run, _merging) for run in runs)
        best[words.name_of(model)] = f"{score:.0%} ({head})"
        numbers |= {f"{model} best": score, f"{model} fewest": min(found)}
    for model, found in counts.items():
        has = exists(found)
        decisions[words.name_of(model)] = negated(has) if model == SOFTMAX else has
    return finding(
        f"heads of the encoder with a score above {MERGES:.0%} over all words, of each seed",
        words.listed({words.name_of(m): words.counts(found) for m, found in counts.items()}),
        f"each seed has one, or none; the best: {words.listed(best)}",
        combined(decisions),
        numbers,
        tested=False,
    )


@claim(
    Claim(
        "correia-merging-more",
        "Correia et al. 2019, 5.2",
        "The best subword-merging head scores higher in sparse models than in softmax.",
    )
)
def best_merging_head(corpus: Corpus) -> Finding:
    """Also where none has the paper's 80 %."""
    decisions, values = {}, {}
    numbers: dict[str, float] = {}
    for model in SPARSE:
        pairs = corpus.pairs({"model": model}, {"model": SOFTMAX}, **PLAIN)
        each = [_best(one, _merging)[0] - _best(other, _merging)[0] for one, other in pairs]
        decisions[words.name_of(model)] = more_than(each)
        values[words.name_of(model)] = words.over_seeds(each, 3, signed=True)
        numbers |= words.interval_numbers(model, each)
    return finding(
        "score of the encoder's best head over all words, less that of softmax",
        words.listed(values),
        "interval over seeds",
        combined(decisions),
        numbers,
    )


def _marking(head: Head) -> float:
    interrogative = head.value("final_punctuation", "interrogative")
    return interrogative - head.value("final_punctuation", "declarative")


@claim(
    Claim(
        "correia-question",
        "Correia et al. 2019, 5.2 (figure 9)",
        "Softmax, 1.5-entmax and learned α have a head that marks questions.",
    )
)
def question_heads(corpus: Corpus) -> Finding:
    """The paper measures the weight from interrogative words alone, this from all tokens.

    It can show such heads, but not that there is none: weight from one word of a question is a few
    points of that from all of them.
    """
    by_model, decisions = _by_model(corpus)
    values, best = {}, {}
    numbers: dict[str, float] = {}
    for model, runs in by_model.items():
        found = [sum(_marking(h) >= MARKS for h in run.each_head(ENCODER_SELF)) for run in runs]
        score, head = max(_best(run, _marking) for run in runs)
        name = words.name_of(model)
        has = exists(found)
        if has.verdict == FAILS:
            has = Decision(
                UNDECIDED,
                f"{has.why}, but one that looks there from interrogative words alone, as the "
                "paper's, would not be seen",
            )
        decisions[name] = has
        values[name] = words.counts(found)
        best[name] = f"{100 * score:.1f} ({head})"
        numbers |= {f"{model} best": score, f"{model} fewest": min(found)}
    return finding(
        f"heads of the encoder with {100 * MARKS:.0f} points more weight on the final mark of questions "
        "than on that of statements, from all tokens, of each seed",
        words.listed(values),
        f"each seed has one; the best, in points: {words.listed(best)}",
        combined(decisions),
        numbers,
        tested=False,
    )
