"""Voita et al. 2019, *Analyzing Multi-Head Self-Attention*, each claim for softmax and for learned α.

Relevance and roles are of the encoder's heads, of models of the large size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy
from scipy import stats

from claims import measures, record, roles, rules, statistics, words
from claims.measures import ALL, PLAIN
from claims.record import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF, Corpus, Head, NotInRecord
from claims.rules import FAILS, HOLDS, LEVEL, ONE_SEED, UNDECIDED, Decision, Finding, Paper

voita = Paper("Voita et al. 2019", *measures.OF_EACH)
SAME = "all heads of a layer are the same"
NO_POSITIONAL = "no head of the encoder is positional"


def _encoder(corpus: Corpus, model: str) -> list[Head]:
    return [head for own in measures.encoders(corpus, model) for head in own]


def _layers(heads: Sequence[Head]) -> list[list[Head]]:
    """The heads of each layer, the bottom first."""
    numbers = sorted({head.layer for head in heads})
    return [[head for head in heads if head.layer == number] for number in numbers]


def _layer(head: Head) -> tuple[str, int]:
    return head.attention, head.layer


def _relevance(head: Head) -> float:
    return head.value("relevance")


def _confidence(head: Head) -> float:
    return head.value("confidence")


# --- sections 4 and 5: what heads do ------------------------------------------


@voita.claim(
    "4",
    "In each layer of the encoder a small number of heads is much more relevant than the others",
)
def few_heads(corpus: Corpus, model: str) -> Finding:
    """Share of a layer's relevance (LRP) that the most relevant quarter of its heads has, mean over
    layers, against sticks broken at random, any division as likely as another; by equal heads it
    would be 0.25."""
    # By layer, in which order the random sticks are drawn
    heads = sorted(_encoder(corpus, model), key=lambda head: head.layer)

    def uneven(heads: Sequence[Head]) -> statistics.HeadStatistic | None:
        return statistics.concentration(statistics.strata_of(heads, _layer, _relevance, _relevance))

    tested = uneven(heads)
    found = measures.of_heads(tested, SAME, 0)
    by_layer = [words.number(one.mean) for own in _layers(heads) if (one := uneven(own))]
    lowest = measures.encoders(corpus, model, layer=0)
    first = [max(map(_relevance, own)) for own in lowest]
    values = (
        f"{found.values}; by layer from below {', '.join(by_layer)}; by a stick broken at random "
        f"{tested.chance if tested else 0:.2f}; the most relevant head of the lowest layer has "
        f"{numpy.mean(first):.2f}"
    )
    return replace(found, values=values)


@voita.claim("4", "The relevance of heads agrees to a reasonable extent with their confidence")
def confidence(corpus: Corpus, model: str) -> Finding:
    """Spearman's correlation of relevance (LRP) and confidence (mean largest weight, ends of
    sentences left out) of the heads of a layer, mean over layers of the encoder."""
    runs = corpus.of(model=model, **PLAIN)
    heads = _encoder(corpus, model)

    def ranks(heads: Iterable[Head]) -> statistics.HeadStatistic | None:
        strata = statistics.strata_of(heads, _layer, _confidence, _relevance)
        return statistics.rank_correlation(strata)

    found = measures.of_heads(ranks(heads), SAME, measures.SMALL_CORRELATION, words.as_correlation)
    by_layer = [words.number(one.mean if (one := ranks(own)) else 0) for own in _layers(heads)]
    others = {
        name: one
        for name in (DECODER_SELF, CROSS)
        if (one := ranks(head for run in runs for head in run.each_head(name)))
    }
    corrected = statistics.holm([one.greater for one in others.values()])
    beside = (
        f"{name} {words.number(one.mean)} ({words.p_value(p)} after Holm)"
        for (name, one), p in zip(others.items(), corrected, strict=True)
    )
    values = f"{found.values}; by layer from below {', '.join(by_layer)}; {'; '.join(beside)}"
    return replace(found, values=values)


@voita.claim(
    "5.1",
    "Some heads of the encoder are positional: 90 % of the time they look at an adjacent token",
    counted=True,
)
def positional(corpus: Corpus, model: str) -> Finding:
    """Heads whose largest weight is at −1 or +1 for 90 % of the queries that have a token there, and
    for more than half of all."""

    def named(head: Head) -> str:
        offset = int(roles.adjacent_share(head)[1])
        return f"{head.name} at {words.number(offset, 0, signed=True)}"

    heads = measures.encoders(corpus, model)
    return measures.heads_exist(
        heads, roles.is_positional, lambda head: roles.adjacent_share(head)[0], named
    )


@voita.claim(
    "5.1",
    "Positional heads are, to a large extent, the most confident and the most relevant heads",
)
def positional_important(corpus: Corpus, model: str) -> Finding:
    """Probability that a positional head has more than another head of its layer (AUC); p after
    Holm."""
    heads = _encoder(corpus, model)
    tests = {}
    for name, score in (("relevance", _relevance), ("confidence", _confidence)):
        strata = statistics.strata_of(
            heads, _layer, score, lambda head: float(roles.is_positional(head))
        )
        tested = statistics.superiority(strata)
        if tested is None:
            raise record.NothingToJudge(NO_POSITIONAL)
        tests[name] = tested
    found = {}
    greater = statistics.holm([tested.greater for tested in tests.values()])
    less = statistics.holm([tested.less for tested in tests.values()])
    for (name, tested), *p in zip(tests.items(), greater, less, strict=True):
        decision = rules.over_heads(tested, measures.SMALL_SUPERIORITY, (p[0], p[1]))
        found[name] = Finding(decision, words.as_share(tested.values), words.p_value(p[0]))
    return rules.several(found)


@voita.claim("5.1", "Every positional head has a mean largest weight above 0.8")
def positional_confident(corpus: Corpus, model: str) -> Finding:
    """Confidence of the positional heads."""
    positional = [head for head in _encoder(corpus, model) if roles.is_positional(head)]
    if not positional:
        raise record.NothingToJudge(NO_POSITIONAL)
    values = [_confidence(head) for head in positional]
    above = sum(value > 0.8 for value in values)
    decision = Decision(FAILS, f"{len(values) - above} of {len(values)} do not")
    if len(corpus.of(model=model, **PLAIN)) < 2:
        decision = ONE_SEED
    elif above == len(values):
        decision = Decision(HOLDS, "all of them do")
    spread = f"from {min(values):.2f} to {max(values):.2f}"
    return Finding(decision, f"{above} of {len(values)} above 0.8; {spread}", "counted")


@voita.claim(
    "5.2",
    "Some heads of the encoder are syntactic: on a dependency relation they are ten points more "
    "accurate than its most frequent relative position",
)
def syntactic(corpus: Corpus, model: str) -> Finding:
    """Heads that find the other word of nsubj, obj, amod or advmod, in either direction, ten points
    more often than the most frequent offset does, and by an exact binomial test, after Holm."""
    heads = measures.encoders(corpus, model)
    such: set[tuple[int, str]] = set()
    for own in heads:
        cases = [(head, one) for head in own for one in roles.accuracies(head)]
        if not cases:
            raise NotInRecord("parses of the source were not given: there are no relations")
        tests = [
            stats.binomtest(round(one.share * one.arcs), one.arcs, one.baseline, "greater")
            for _, one in cases
        ]
        corrected = statistics.holm([test.pvalue for test in tests])
        for (head, one), p in zip(cases, corrected, strict=True):
            if one.is_syntactic and p < LEVEL:
                such.add((head.run.seed, head.name))

    def best(head: Head) -> roles.Accuracy:
        return max(roles.accuracies(head), key=lambda one: one.above)

    def named(head: Head) -> str:
        one = best(head)
        shares = f"{100 * one.share:.0f} % against {100 * one.baseline:.0f} %"
        return f"{head.name} on {one.case}: {shares}"

    return measures.heads_exist(
        heads,
        lambda head: (head.run.seed, head.name) in such,
        lambda head: best(head).above,
        named,
    )


@voita.claim(
    "5.3",
    "One head of the lowest layer looks at rare words: in half of the cases or more, at one of the "
    "two rarest tokens",
    counted=True,
)
def rare_words(corpus: Corpus, model: str) -> Finding:
    """Heads of the lowest layer whose largest weight is on one of the sentence's two rarest tokens,
    of half of the queries of sentences that have a rare one."""
    heads = measures.encoders(corpus, model, layer=0)
    if all(head.get("rare_word", "two_rarest") is None for own in heads for head in own):
        raise NotInRecord("the analyses have no share of rare words")
    return measures.heads_exist(heads, roles.is_rare_word, roles.rare_word_share)


@voita.claim(
    "5.3", "The head that looks at rare words is the most relevant one of the lowest layer"
)
def rare_words_relevant(corpus: Corpus, model: str) -> Finding:
    """Whether the most relevant head of the lowest layer looks at rare words."""
    firsts, chances = [], []
    for heads in measures.encoders(corpus, model, layer=0):
        rare = [head for head in heads if roles.is_rare_word(head)]
        if rare:
            firsts.append(max(map(_relevance, rare)) >= max(map(_relevance, heads)))
            # One of them is the first by chance with the probability that they are a share of
            chances.append(len(rare) / len(heads))
    if not firsts:
        raise record.NothingToJudge("no head of the lowest layer looks at rare words")
    # The seeds are independent; where one of them says no, chance alone does as much
    p = float(numpy.prod(chances)) if all(firsts) else 1.0
    decision = rules.in_each(firsts, "it as the most relevant head")
    if decision.verdict == HOLDS and p >= LEVEL:
        decision = Decision(UNDECIDED, "chance alone might do as much")
    values = f"{sum(firsts)} of {len(firsts)} seeds with such a head"
    return Finding(decision, values, f"against any head of the layer: {words.p_value(p)}")


@voita.claim(
    "5", "The important heads have interpretable roles: positional, syntactic, or rare words"
)
def roles_relevant(corpus: Corpus, model: str) -> Finding:
    """Spearman's correlation of relevance (LRP) with how near a head is to its nearest role (1: it
    has one), within layers, mean over layers."""
    heads = measures.encoders(corpus, model)
    strata = statistics.strata_of(
        [head for own in heads for head in own], _layer, roles.role_score, _relevance
    )
    tested = statistics.rank_correlation(strata)
    found = measures.of_heads(tested, SAME, measures.SMALL_CORRELATION, words.as_correlation)
    having = [sum(bool(roles.roles_of(head)) for head in own) for own in heads]
    if not any(having):
        why = roles.without_roles(corpus.of(model=model, **PLAIN))
        found = replace(found, decision=Decision(UNDECIDED, why))
    had = f"{', '.join(map(str, having))} heads have a role"
    return replace(found, values=f"{found.values}; {had}")


# --- section 6: pruning -------------------------------------------------------


@voita.claim(
    "6.2.1", "With all but a few heads of the encoder pruned, no more than 0.25 BLEU is lost"
)
def encoder_pruned(corpus: Corpus, model: str) -> Finding:
    """BLEU of the test set, 4 of 24 encoder heads against the baseline trained on for as many
    updates."""
    return measures.loss_by_pruning(corpus, model, measures.ENCODER, 0.25)


@voita.claim("6.2.2", "The pruned encoder has heads with all the roles that there were before")
def roles_left(corpus: Corpus, model: str) -> Finding:
    """Roles (position −1 or +1, rare words, syntactic relations) that some encoder head has, by the
    paper's thresholds; 24 of 72 heads."""
    pairs = measures.pruned_with_baseline(corpus, model, ALL)
    both = [[roles.encoder_roles(run) for run in pair] for pair in pairs]
    left = [(len(before), len(before & after)) for after, before in both if before]
    if not left:
        raise record.NothingToJudge(
            f"before pruning {roles.without_roles([run for _, run in pairs])}"
        )
    decision = rules.in_each([had == has for had, has in left], "all roles left")
    return Finding(decision, "; ".join(f"{has} of {had} left" for had, has in left), "counted")


def _roles_survive(corpus: Corpus, model: str, budget: str) -> Finding:
    pairs = measures.pruned_with_baseline(corpus, model, budget)
    found = measures.survivors(pairs, [ENCODER_SELF], lambda head: ENCODER_SELF, roles.role_score)
    baselines = [baseline for _, baseline in pairs]
    if any(map(roles.encoder_roles, baselines)):
        return found
    why = f"before pruning {roles.without_roles(baselines)}"
    return replace(found, decision=Decision(UNDECIDED, why))


@voita.claim(
    "6.2.2",
    "Specialized heads of the encoder are the last to be pruned, of all attentions together",
)
def roles_survive(corpus: Corpus, model: str) -> Finding:
    """Probability that a head that is left had more than one that is removed (AUC), of how near a
    head of the encoder was to its nearest role (1: it had one) in the baseline; 24 of 72 heads."""
    return _roles_survive(corpus, model, ALL)


@voita.claim(
    "6.2.2", "Specialized heads of the encoder are the last to be pruned, of the encoder alone"
)
def roles_survive_encoder(corpus: Corpus, model: str) -> Finding:
    """Probability that a head that is left had more than one that is removed (AUC), of how near a
    head of the encoder was to its nearest role (1: it had one) in the baseline; 4 of 24 encoder
    heads."""
    return _roles_survive(corpus, model, measures.ENCODER)


@voita.claim("6.2.2", "Positional heads of the encoder are kept")
def positional_kept(corpus: Corpus, model: str) -> Finding:
    """Positional heads of the baseline's encoder that are left, against its other heads (Fisher's
    exact test); 24 of 72 heads."""
    draws = []
    for pruned, baseline in measures.pruned_with_baseline(corpus, model, ALL):
        heads = list(baseline.each_head(ENCODER_SELF))
        left = measures.left_in(pruned)
        positional = {head.name for head in heads if roles.is_positional(head)}
        number = sum(head.name in left for head in heads)
        draws.append(
            statistics.Draw(
                baseline.seed, len(heads), len(positional), number, len(left & positional)
            )
        )
    found = measures.of_heads(
        statistics.chosen_more_often(draws), NO_POSITIONAL, measures.SMALL_SHARE, words.signed
    )
    _, of_all, marked, chosen, both = numpy.sum(draws, axis=0)
    kept = f"{both} of {marked} positional heads, {chosen - both} of {of_all - marked} others"
    return replace(found, values=f"{kept}; difference of shares {found.values}")


def _survive(
    corpus: Corpus,
    model: str,
    score: Callable[[Head], float],
    among: Callable[[Head], object] = _layer,
) -> Finding:
    """Beside what decides stands the same of heads of one layer, as where heads are left depends on
    the layer, and of a search in the encoder alone, where the others do not compete."""
    pairs = measures.pruned_with_baseline(corpus, model, ALL)
    found = {"": measures.survivors(pairs, ATTENTIONS, among, score)}
    if among is not _layer:
        found["of heads of the same layer "] = measures.survivors(pairs, ATTENTIONS, _layer, score)
    try:
        pairs = measures.pruned_with_baseline(corpus, model, measures.ENCODER)
        alone = "in the encoder alone, 4 of 24 encoder heads, of heads of the same layer "
        found[alone] = measures.survivors(pairs, [ENCODER_SELF], _layer, score)
    except NotInRecord:
        pass
    beside = [f"{name}{one.values}, {one.test}" for name, one in found.items()]
    return replace(found[""], values="; ".join(beside))


@voita.claim(
    "1 and 6.2.2", "Pruning agrees with relevance: the more relevant heads of a layer are left"
)
def relevance_survives(corpus: Corpus, model: str) -> Finding:
    """Probability that a head that is left had more than one that is removed (AUC), of relevance
    within its layer in the baseline; 24 of 72 heads."""
    return _survive(corpus, model, _relevance)


@voita.claim(
    "expected in 4, by what pruning leaves",
    "The more confident heads of an attention are left by pruning",
)
def confidence_survives(corpus: Corpus, model: str) -> Finding:
    """Probability that a head that is left had more than one that is removed (AUC), of confidence
    within its attention in the baseline; 24 of 72 heads."""
    return _survive(corpus, model, _confidence, lambda head: head.attention)


@voita.claim(
    "6.3.1", "More than half of all heads can be pruned, and no more than 0.25 BLEU is lost"
)
def pruned(corpus: Corpus, model: str) -> Finding:
    """BLEU of the test set, 36 of 72 heads (the nearest to more than half), or else 24, against the
    baseline trained on for as many updates."""
    try:
        return measures.loss_by_pruning(corpus, model, measures.HALF, 0.25)
    except NotInRecord:
        found = measures.loss_by_pruning(corpus, model, ALL, 0.25)
    if found.decision.verdict != FAILS:
        return found
    why = f"of two thirds it is not so, which leaves half open: {found.decision.why}"
    return replace(found, decision=Decision(UNDECIDED, why))


@voita.claim(
    "6.3.1, by a wider limit",
    "Two thirds of all heads can be pruned, and no more than 0.5 BLEU is lost",
)
def pruned_wider(corpus: Corpus, model: str) -> Finding:
    """BLEU of the test set, 24 of 72 heads against the baseline trained on for as many updates."""
    return measures.loss_by_pruning(corpus, model, ALL, 0.5)


@voita.claim("6.3.1", "A pruned model is better than one with the same heads trained from scratch")
def scratch(corpus: Corpus, model: str) -> Finding:
    """BLEU of the test set, 24 of 72 heads against the same heads in each layer from scratch."""
    pairs = measures.pruned_and_other(corpus, model, ALL, record.SCRATCH)
    found = measures.compare_bleu(pairs, rules.more_than, margin=0.1)
    updates = f"{pairs[0][0].updates} and {pairs[0][1].updates} updates in all"
    return replace(found, values=f"{found.values}; {updates}")


Left = Mapping[str, int]  # of each attention, how many heads


def _left(pairs: Sequence[tuple[record.Run, record.Run]]) -> list[Left]:
    """How many heads pruned models have."""
    return [{name: sum(run.heads[name]) for name in ATTENTIONS} for run, _ in pairs]


def _counted(left: Sequence[Left]) -> str:
    """Such as ``encoder-self 6, 5, 7; decoder-self 9, 9, 8; cross 9, 10, 9 heads``."""
    counts = (f"{name} {', '.join(str(own[name]) for own in left)}" for name in ATTENTIONS)
    return f"{'; '.join(counts)} heads"


def _left_more(
    pairs: Sequence[tuple[record.Run, record.Run]],
    left: Sequence[Left],
    contests: Sequence[tuple[str, str]],
) -> Finding:
    """Whether heads of one attention are left more often than those of another, in each contest."""
    found = {}
    for one, other in contests:
        draws = [
            statistics.Draw(
                baseline.seed,
                sum(baseline.heads[one]) + sum(baseline.heads[other]),
                sum(baseline.heads[one]),
                own[one] + own[other],
                own[one],
            )
            for (_, baseline), own in zip(pairs, left, strict=True)
        ]
        found[f"{one} against {other}"] = measures.of_heads(
            statistics.chosen_more_often(draws),
            "the models have one attention alone",
            measures.SMALL_SHARE,
            lambda values: f"{words.signed(values)} {words.of_seeds(values, signs=True)}",
        )
    return rules.several(found)


@voita.claim("6.3.2", "Of all attentions, heads of the encoder are pruned first")
def encoder_first(corpus: Corpus, model: str) -> Finding:
    """By how much heads of each other attention are left more often than those of the encoder, as a
    difference of shares (Fisher's exact test); 24 of 72 heads; at the point of the search where half
    of all heads are closed."""
    pairs = measures.pruned_with_baseline(corpus, model, ALL)
    points = [half_closed(*pair) for pair in pairs]
    found = _left_more(pairs, points, [(name, ENCODER_SELF) for name in (DECODER_SELF, CROSS)])
    values = f"{_counted(points)} open; {found.values}; at the end {_counted(_left(pairs))} left"
    return replace(found, values=values)


def half_closed(pruned: record.Run, baseline: record.Run) -> Left:
    """How many heads were open when first half of all were closed: at the start none is closed, and
    at the end the budget decides. Means over some updates are rounded to whole heads."""
    whole = sum(sum(layers) for layers in baseline.heads.values())
    for point in sorted(pruned.search or (), key=lambda point: point["updates"]):
        if 2 * sum(point["open"].values()) <= whole:
            return {attention: round(heads) for attention, heads in point["open"].items()}
    raise NotInRecord(f"the record has no course of the search of {pruned.run}")


@voita.claim(
    "6.3.2",
    "Heads of the attention from the decoder to the encoder are the most important: pruned last",
)
def cross_last(corpus: Corpus, model: str) -> Finding:
    """By how much heads of cross-attention are left more often than those of each other attention,
    as a difference of shares (Fisher's exact test); 24 of 72 heads."""
    pairs = measures.pruned_with_baseline(corpus, model, ALL)
    left = _left(pairs)
    found = _left_more(pairs, left, [(CROSS, name) for name in (ENCODER_SELF, DECODER_SELF)])
    return replace(found, values=f"{_counted(left)} left; {found.values}")


@voita.claim(
    "6.3.2",
    "In the decoder, self-attention is kept in the lower layers, and attention to the encoder in the "
    "higher ones",
)
def decoder_layers(corpus: Corpus, model: str) -> Finding:
    """Mean layer, from 0, of the heads that are left, cross less decoder-self; up to 0.1 is of no
    importance; 24 of 72 heads."""
    runs = [pruned for pruned, _ in measures.pruned_with_baseline(corpus, model, ALL)]
    layers = {}
    for name in (DECODER_SELF, CROSS):
        if not all(sum(run.heads[name]) for run in runs):
            raise record.NothingToJudge(f"a model has no head of {name} left")
        layers[name] = numpy.array(
            [
                numpy.average(range(len(own)), weights=own)
                for own in (run.heads[name] for run in runs)
            ]
        )
    found = measures.more(layers[CROSS] - layers[DECODER_SELF], 0.1)
    means = ", ".join(f"{name} {own.mean():.2f}" for name, own in layers.items())
    return replace(found, values=f"{found.values}; {means}")
