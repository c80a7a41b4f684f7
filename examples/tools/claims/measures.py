"""Measures that claims of several papers share: differences by seed, BLEU, heads, pruning, speed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy

from claims import record, rules, statistics, words
from claims.modes import Array
from claims.record import PRUNED, TRAINED, Corpus, Head, NothingToJudge, NotInRecord, Pairs, Run
from claims.rules import FAILS, UNFORMED, Decision, Finding, several
from claims.statistics import Bootstrap, HeadStatistic
from claims.words import name_of, of_bootstrap, signed

SOFTMAX, FIXED, LEARNED, SPARSEMAX = "softmax", "entmax15", "entmax", "sparsemax"
PLAIN = {"size": record.LARGE, "role": TRAINED}
LITTLE = {"size": record.SMALL, "role": TRAINED}
ALL, HALF, ENCODER = "all24", "all36", "encoder4"
# Numbers of updates that differ by at most this share count as equal
EQUAL_UPDATES = 0.05
# Up to these, rank correlations, AUCs (distance from one half) and shares of heads are unimportant
SMALL_CORRELATION, SMALL_SUPERIORITY, SMALL_SHARE = 0.2, 0.1, 0.05
TRANSLATION, TRAINING = "sentences_per_second_rounds", "updates_per_second_rounds"

# --- differences by seed ------------------------------------------------------


def mean_of(attentions: Iterable[str], *path: str) -> Callable[[Run], float]:
    """A function: the mean of a number of the analysis over the heads of these attentions."""
    return lambda run: float(numpy.mean([h.value(*path) for h in run.each_head(*attentions)]))


def each(runs: Iterable[Any], measure: Callable[[Any], float]) -> Array:
    return numpy.array([measure(run) for run in runs])


def gap(pairs: Pairs, measure: Callable[[Run], float]) -> Array:
    return numpy.array([measure(one) - measure(other) for one, other in pairs])


def means(pairs: Pairs, measure: Callable[[Run], float]) -> str:
    """The means of both, such as ``0.123 against 0.045``."""
    both = zip(*pairs, strict=True)
    return " against ".join(f"{each(runs, measure).mean():.3f}" for runs in both)


def more(
    differences: Collection[float],
    margin: float = 0.0,
    digits: int = 2,
    test: str = "interval over seeds",
) -> Finding:
    return Finding(rules.more_than(differences, margin=margin), signed(differences, digits), test)


def of_each(models: Iterable[str]) -> Callable[[Callable[..., Finding]], Callable[..., Finding]]:
    """A decorator: the judge of a corpus and a model becomes one of the corpus and these models."""

    def together(judge: Callable[..., Finding]) -> Callable[..., Finding]:
        return lambda corpus, **given: several(
            {name_of(model): judge(corpus, model, **given) for model in models}
        )

    return together


# --- BLEU ---------------------------------------------------------------------


def brevity(pairs: Pairs) -> str:
    return f"brevity penalties {means(pairs, lambda run: run.brevity)}"


def difference(pairs: Pairs) -> tuple[list[float], Bootstrap]:
    """BLEU of the first minus the second of each pair, and the mean over resampled sentences."""
    if len({run.test_set for pair in pairs for run in pair}) > 1:
        raise NothingToJudge("the runs were scored on different test sets")
    sentences = ([run.sentences for run in runs] for runs in zip(*pairs, strict=True))
    return [one.bleu - other.bleu for one, other in pairs], statistics.paired_bootstrap(*sentences)


def compare_bleu(pairs: Pairs, rule: Callable[..., Decision], **options: Any) -> Finding:
    """Compare BLEU of the first and second of each pair, by a rule on seeds and sentences."""
    each, sampled = difference(pairs)
    first, second = numpy.mean([(one.bleu, other.bleu) for one, other in pairs], axis=0)
    return Finding(
        rule(each, sampled, **options),
        f"BLEU {first:.2f} against {second:.2f}; difference {signed(each)}; {brevity(pairs)}",
        f"t interval over seeds; {of_bootstrap(sampled)}",
    )


def bleu(
    corpus: Corpus, model: str, rule: Callable[..., Decision], other: str = SOFTMAX, **options: Any
) -> Finding:
    pairs = corpus.pairs({"model": model}, {"model": other}, **LITTLE)
    return compare_bleu(pairs, rule, **options)


def pruned_of_both(corpus: Corpus) -> tuple[Pairs, Pairs]:
    """Models pruned to a third of the heads with those trained on, of learned α and of softmax."""
    both = [
        {pair[0].seed: pair for pair in pruned_and_other(corpus, model, ALL, record.CONTINUED)}
        for model in (LEARNED, SOFTMAX)
    ]
    seeds = sorted(both[0].keys() & both[1].keys())
    if not seeds:
        raise NotInRecord("no seed has pruned models of both")
    learned, softmax = ([pairs[seed] for seed in seeds] for pairs in both)
    return learned, softmax


def difference_of_pruning(corpus: Corpus, rule: Callable[..., Decision], **options: Any) -> Finding:
    """The BLEU change by pruning to a third of the heads: that of learned α minus that of softmax."""
    learned, softmax = pruned_of_both(corpus)
    costs = [gap(pairs, lambda run: run.bleu) for pairs in (learned, softmax)]
    each = list(costs[0] - costs[1])
    _, half = difference([*learned, *((continued, one) for one, continued in softmax)])
    # The mean over twice as many pairs is half the difference
    sampled = Bootstrap(2 * half.difference, 2 * half.low, 2 * half.high, half.p)
    return Finding(
        rule(each, sampled, **options),
        f"{signed(each)}; learned α {signed(costs[0])}, softmax {signed(costs[1])}",
        f"t interval over seeds; {of_bootstrap(sampled)}",
    )


# --- heads --------------------------------------------------------------------


def of_attentions(runs: Sequence[Run], *path: str) -> str:
    """Means over heads and seeds; a dash for an attention whose heads have no such number."""
    shown = []
    for attention in record.ATTENTIONS:
        try:
            found = [h.value(*path) for run in runs for h in run.each_head(attention)]
            shown.append(words.number(float(numpy.mean(found))) if found else "–")
        except NotInRecord:
            shown.append("–")
    return ", ".join(shown)


def heads_exist(
    heads: Iterable[Iterable[Head]],
    has: Callable[[Head], bool],
    score: Callable[[Head], float],
    named: Callable[[Head], str] = lambda head: head.name,
    digits: int = 0,
) -> Finding:
    """Whether each seed's model has such heads; the finding names the one with the best score."""
    heads = [list(own) for own in heads]
    found = [sum(map(has, own)) for own in heads]
    scores = [(score(head), named(head), head.run.seed) for own in heads for head in own]
    best, name, seed = max(scores)
    test = f"the best: {words.number(100 * best, digits)} % ({name} of seed {seed})"
    decision = rules.in_each(found, "such a head")
    if decision.verdict == FAILS:
        decision = Decision(UNFORMED, decision.why)
    return Finding(decision, words.counts(found), test)


def of_heads(
    tested: HeadStatistic | None,
    missing: str,
    margin: float,
    shown: Callable[[Sequence[float]], str] = words.as_share,
) -> Finding:
    """Whether a statistic over heads is above chance; `missing` says why there is none."""
    if tested is None:
        raise NothingToJudge(missing)
    return Finding(rules.over_heads(tested, margin), shown(tested.values), words.p_of_sides(tested))


def correlated(
    heads: Iterable[Head],
    group: Callable[[Head], Any],
    first: Callable[[Head], float],
    second: Callable[[Head], float],
    missing: str,
) -> Finding:
    """Whether two scores of heads are correlated in rank within groups."""
    tested = statistics.rank_correlation(statistics.strata_of(heads, group, first, second))
    return of_heads(tested, missing, SMALL_CORRELATION, words.as_correlation)


def encoders(corpus: Corpus, model: str, layer: int | None = None) -> list[list[Head]]:
    """For each seed, the encoder heads of the large model, or those of one layer."""
    return [
        [head for head in run.each_head(record.ENCODER_SELF) if layer in (None, head.layer)]
        for run in corpus.of(model=model, **PLAIN)
    ]


# --- pruning ------------------------------------------------------------------


def pruned_with_baseline(corpus: Corpus, model: str, budget: str, role: str = TRAINED) -> Pairs:
    wanted = {"role": PRUNED, "budget": budget}
    return corpus.pairs(wanted, {"role": role}, model=model, size=record.LARGE)


def pruned_and_other(corpus: Corpus, model: str, budget: str, role: str) -> Pairs:
    """Each pruned model with another one that had as many updates."""
    pairs = pruned_with_baseline(corpus, model, budget, role)
    require_equal_updates(pairs)
    return pairs


def loss_by_pruning(corpus: Corpus, model: str, budget: str, limit: float) -> Finding:
    """Whether pruned models lose at most `limit` BLEU compared with the continued baseline."""
    pairs = pruned_and_other(corpus, model, budget, record.CONTINUED)
    return compare_bleu(pairs, rules.loses_at_most, limit=limit)


def require_equal_updates(pairs: Pairs) -> None:
    for one, other in pairs:
        if abs(one.updates - other.updates) > EQUAL_UPDATES * other.updates:
            raise NothingToJudge(
                f"{one.run} had {one.updates} updates and {other.run} {other.updates}: what they "
                "differ in may be that"
            )


def remaining_heads(run: Run) -> set[str]:
    return {head.name for head in run.each_head()}


def survivors(
    pairs: Pairs,
    attentions: Iterable[str],
    group: Callable[[Head], Any],
    score: Callable[[Head], float],
) -> Finding:
    """How often a remaining head had a higher score than a removed one of the same group."""
    names = {baseline.run: remaining_heads(pruned) for pruned, baseline in pairs}
    heads = [head for _, baseline in pairs for head in baseline.each_head(*attentions)]
    strata = statistics.strata_of(heads, group, score, lambda h: float(h.name in names[h.run.run]))
    missing = "pruning left all of the heads that are compared with each other, or none"
    return of_heads(statistics.superiority(strata), missing, SMALL_SUPERIORITY)


# --- speed --------------------------------------------------------------------


def _timed(corpus: Corpus) -> dict[str, Any]:
    return {entry["run"]: entry for entry in (corpus.speed or {}).get("models", [])}


def timed_run(corpus: Corpus, model: str, role: str = TRAINED, **wanted: str) -> Run:
    wanted = {"model": model, "role": role, **wanted}
    timed = _timed(corpus)
    runs = [run for run in corpus.runs if run.size == record.LARGE and run.run in timed]
    try:
        return Corpus(corpus.name, runs).of(**wanted)[0]
    except NotInRecord as error:
        raise NotInRecord(
            f"speed was not measured of a run with {record.in_words(wanted)}"
        ) from error


def faster(
    corpus: Corpus, what: str, one: Run, other: Run, share: float = 1, margin: float = 0.0
) -> Finding:
    """Whether a run has more than a share of another's speed; the only noise is that of timing."""
    rounds = zip(*(_timed(corpus)[run.run][what] for run in (one, other)), strict=True)
    found = [float(ours) / float(theirs) for ours, theirs in rounds]
    decision = rules.more_than(
        [ratio - share for ratio in found], margin=margin, against=f"{share:g}"
    )
    return Finding(decision, words.over_seeds(found), "interval over rounds")
