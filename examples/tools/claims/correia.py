"""Correia, Niculae and Martins 2019, *Adaptively Sparse Transformers*: results and section 5.

All runs are of the large size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
from scipy import stats

from claims import measures, record, statistics, words
from claims.measures import FIXED, LEARNED, PLAIN, SOFTMAX, gap, heads_exist, more, of_each
from claims.modes import Array
from claims.record import ATTENTIONS, DECODER_SELF, ENCODER_SELF, Corpus, Head, Pairs, Run
from claims.rules import FAILS, HOLDS, UNDECIDED, UNFORMED, Decision, Finding, several

SPARSE = (FIXED, LEARNED)


def learned(corpus: Corpus) -> list[Run]:
    return corpus.of(model=LEARNED, **PLAIN)


def _against(corpus: Corpus, model: str, other: str = SOFTMAX) -> Pairs:
    return corpus.pairs({"model": model}, {"model": other}, **PLAIN)


# --- density and diversity ----------------------------------------------------


def _histogram(run: Run) -> Any:
    """The shares of pairs of head and sentence in 20 bins of density."""
    found = [row for head in run.each_head() if (row := head.get("density_histogram")) is not None]
    if not found:
        raise record.NotInRecord(f"the analysis of {run.run} has no histogram of density")
    return numpy.sum(found, axis=0) / numpy.sum(found)


def dense_mode(corpus: Corpus) -> Finding:
    pairs = zip(*_against(corpus, LEARNED, FIXED), strict=True)
    learned, fixed = (numpy.array([_histogram(run) for run in runs]) for runs in pairs)
    found = more(learned[:, -1] - fixed[:, -1], 0.01, digits=3)
    decision, pooled, of_fixed = found.decision, learned.mean(0), fixed.mean(0)
    if decision.verdict == HOLDS and pooled[-1] <= pooled[-2]:
        decision = Decision(FAILS, "there are more, but no mode: those below are as frequent")
    elif decision.verdict == HOLDS and of_fixed[-1] > of_fixed[-2] + 0.01:
        decision = Decision(FAILS, "there are more, but 1.5-entmax has such a mode, too")
    one, other = (words.over_seeds(own[:, -1], 3) for own in (learned, fixed))
    return Finding(decision, f"learned α {one}, 1.5-entmax {other}", f"difference {found.values}")


def decoder_is_denser(corpus: Corpus) -> Finding:
    encoder, *others = (
        measures.each(learned(corpus), measures.mean_of([name], "density")) for name in ATTENTIONS
    )
    means = dict(zip(ATTENTIONS, map(words.over_seeds, (encoder, *others)), strict=True))
    of_each = zip(ATTENTIONS[1:], others, strict=True)
    found = several({name: more(own - encoder, 0.02) for name, own in of_each})
    less = f"less that of the encoder: {found.values}"
    return found._replace(values=words.listed(means), test=less)


def _densities(run: Run, attention: str) -> list[list[float]]:
    """The densities of the heads in each layer that has heads, bottom layer first."""
    layers = [[head["density"] for head in entry["heads"]] for entry in run.layers(attention)]
    return [heads for heads in layers if heads and None not in heads]


def _rise(run: Run, attention: str) -> float:
    """Mean density of the last layer minus that of the first."""
    layers = _densities(run, attention)
    if len(layers) < 2:
        raise record.NotInRecord(
            f"the analysis of {run.run} has no densities of two layers of {attention}"
        )
    return float(numpy.mean(layers[-1]) - numpy.mean(layers[0]))


def _spread(run: Run, attention: str) -> float:
    """Standard deviation of density between the heads of a layer, averaged over layers."""
    spreads = [float(numpy.std(heads)) for heads in _densities(run, attention) if len(heads) > 1]
    if not spreads:
        raise record.NotInRecord(f"the analysis of {run.run} has no densities of {attention}")
    return float(numpy.mean(spreads))


def _diversities(run: Run, attention: str) -> list[float]:
    found = [entry.get("diversity") for entry in run.layers(attention)]
    values = [float(value) for value in found if value is not None]
    if not values:
        raise record.NotInRecord(f"the analysis of {run.run} has no diversity of {attention}")
    return values


def _over_attentions(measure: Callable[[str], Array], margin: float = 0.01) -> Finding:
    """Whether a measure of each seed, averaged over attentions, is above 0."""
    of_each = {name: measure(name) for name in ATTENTIONS}
    test = words.listed({a: words.number(own.mean(), 3, signed=True) for a, own in of_each.items()})
    means = numpy.mean(list(of_each.values()), axis=0)
    return more(means, margin, 3, f"interval over seeds; of each attention: {test}")


@of_each(SPARSE)
def last_layers(corpus: Corpus, model: str) -> Finding:
    runs = corpus.of(model=model, **PLAIN)
    return _over_attentions(lambda name: measures.each(runs, partial(_rise, attention=name)), 0.02)


def densities_differ(corpus: Corpus) -> Finding:
    pairs = _against(corpus, LEARNED, FIXED)
    return _over_attentions(lambda name: gap(pairs, partial(_spread, attention=name)))


@of_each(SPARSE)
def diversity(corpus: Corpus, model: str) -> Finding:
    def mean(run: Run, attention: str) -> float:
        return float(numpy.mean(_diversities(run, attention)))

    pairs = _against(corpus, model)
    return _over_attentions(lambda name: gap(pairs, partial(mean, attention=name)))


def diversity_peaks(corpus: Corpus) -> Finding:
    found = {}
    for attention in ATTENTIONS:
        layers = [_diversities(run, attention) for run in learned(corpus)]
        if any(len(own) < 3 for own in layers):
            raise record.NothingToJudge(
                f"a model has no three layers of {attention} with a diversity"
            )
        heights = [float(numpy.mean(own[1:-1])) - max(own[0], own[-1]) for own in layers]
        one = more(heights, 0.01, 3)
        found[attention] = one.denied() if attention == DECODER_SELF else one
    return several(found)


# --- roles of heads -----------------------------------------------------------


def _is_at(head: Head, offset: int) -> bool:
    return head.get("positional", "offset") == offset


def positional(corpus: Corpus) -> Finding:
    found = {}
    for model in (SOFTMAX, *SPARSE):
        for offset in (-1, 1):
            # The decoder does not see later tokens
            attentions = [ENCODER_SELF, *([DECODER_SELF] if offset < 0 else [])]
            found[f"{words.name_of(model)} at {words.number(offset, 0, signed=True)}"] = (
                heads_exist(
                    [run.each_head(*attentions) for run in corpus.of(model=model, **PLAIN)],
                    partial(_is_at, offset=offset),
                    lambda head, at=f"{offset}": head.value("offsets", "share", at),  # type: ignore[misc]
                )
            )
    return several(found)


def positional_confidence(corpus: Corpus) -> Finding:
    found, p_values = {}, []
    for model in SPARSE:
        differences, of_heads = _more_confident(_against(corpus, model))
        name = words.name_of(model)
        if not differences:
            raise record.NothingToJudge(f"no seed has such heads both in softmax and in {name}")
        p_values.append(statistics.combined_p(of_heads))
        found[name] = more(differences, digits=3)
    corrected = dict(zip(found, map(words.p_value, statistics.holm(p_values)), strict=True))
    return several(found)._replace(test=words.listed(corrected))


def _more_confident(pairs: Pairs) -> tuple[list[float], list[float]]:
    """For each seed with such heads, the difference of medians; and the p-values over heads."""
    differences, p_values = [], []
    for pair in pairs:
        gains = []
        for offset in (-1, 1):
            heads = [list(run.each_head(ENCODER_SELF, DECODER_SELF)) for run in pair]
            one, other = (
                [head.value("positional", "confidence") for head in own if _is_at(head, offset)]
                for own in heads
            )
            if one and other:
                gains.append(float(numpy.median(one) - numpy.median(other)))
                p_values.append(float(stats.mannwhitneyu(one, other, alternative="greater")[1]))
        if gains:
            differences.append(float(numpy.mean(gains)))
    return differences, p_values


def _merging(head: Head) -> float:
    return head.value("subword_merging", "all")


@of_each((SOFTMAX, *SPARSE))
def merging(corpus: Corpus, model: str) -> Finding:
    heads = measures.encoders(corpus, model)
    found = heads_exist(heads, lambda head: _merging(head) > 0.8, _merging)
    return found.denied() if model == SOFTMAX else found


@of_each(SPARSE)
def best_merging(corpus: Corpus, model: str) -> Finding:
    def best(run: Run) -> float:
        return max(map(_merging, run.each_head(ENCODER_SELF)))

    return more(gap(_against(corpus, model), best), digits=3)


def _mark_measure(head: Head) -> str:
    """The measure to use: from question words, if the analysis has it, else final punctuation."""
    from_words = head.get("question_word", "declarative") is not None
    return "question_word" if from_words else "final_punctuation"


def _marking(head: Head) -> float:
    name = _mark_measure(head)
    return head.value(name, "interrogative") - head.value(name, "declarative")


@of_each((SOFTMAX, *SPARSE))
def questions(corpus: Corpus, model: str) -> Finding:
    # Looking from one interrogative word, as in the paper, adds few points: that may go unseen
    unseen = "but one that looks there from interrogative words alone would not be seen"
    heads = measures.encoders(corpus, model)
    found = heads_exist(heads, lambda head: _marking(head) >= 0.1, _marking, digits=1)
    is_seen = all(_mark_measure(head) == "question_word" for own in heads for head in own)
    is_open = found.decision.verdict == UNFORMED and not is_seen
    return found.but(UNDECIDED, f"{found.decision.why}, {unseen}") if is_open else found


@of_each(SPARSE)
def speed(corpus: Corpus, model: str) -> Finding:
    published = {FIXED: 0.9, LEARNED: 0.75}
    one, other = (measures.timed_run(corpus, name) for name in (model, SOFTMAX))
    return measures.faster(corpus, measures.TRAINING, one, other, published[model])
