"""Voita et al. 2019, *Analyzing Multi-Head Self-Attention*: each claim for softmax and for learned α.

Relevance and roles are those of encoder heads, in models of the large size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy
from scipy import stats

from claims import measures, record, roles, rules, statistics, words
from claims.baan import LOSS, removals
from claims.measures import ALL, PLAIN, pruned_with_baseline, survivors
from claims.record import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF, Corpus, Head, Pairs, Run
from claims.rules import FAILS, HOLDS, LEVEL, ONE_SEED, UNDECIDED, Decision, Finding, several

SAME = "all heads of a layer are the same"
NO_POSITIONAL = "no head of the encoder is positional"


def _encoder(corpus: Corpus, model: str) -> list[Head]:
    """The encoder heads of all seeds."""
    return [head for own in measures.encoders(corpus, model) for head in own]


def _layer(head: Head) -> tuple[str, int]:
    return head.attention, head.layer


def _relevance(head: Head) -> float:
    return head.value("relevance")


def _confidence(head: Head) -> float:
    return head.value("confidence")


# --- sections 4 and 5: what heads do ------------------------------------------


def few_heads(corpus: Corpus, model: str) -> Finding:
    """Judged by removal: there is no distribution with which relevance could be compared."""
    shares, most = [], []
    for run in corpus.of(model=model, **PLAIN):
        harms = {name: max(one["change"], 0.0) for name, one in removals(run, LOSS).items()}
        layers: dict[int, list[float]] = {}
        for head in run.each_head(ENCODER_SELF):
            if head.name not in harms:
                raise record.NotInRecord(
                    f"the record has no ablation of {run.run} without {head.name}"
                )
            layers.setdefault(head.layer, []).append(harms[head.name])
        for own in layers.values():
            own.sort(reverse=True)
        quarters = [sum(own[: len(own) // 4]) / sum(own) for own in layers.values() if any(own)]
        shares.append(float(numpy.mean(quarters)))
        most.append(max(map(max, layers.values())))
    decision = rules.more_than(numpy.subtract(shares, 0.5), against="0.5")
    values = f"{words.as_share(shares)}; the most harmful costs {', '.join(map(words.number, most))} nats a token"
    return Finding(decision, values, "interval over seeds, of what is above 0.5")


def confidence(corpus: Corpus, model: str) -> Finding:
    runs, heads = corpus.of(model=model, **PLAIN), _encoder(corpus, model)

    def ranks(heads: Iterable[Head]) -> statistics.HeadStatistic | None:
        strata = statistics.strata_of(heads, _layer, _confidence, _relevance)
        return statistics.rank_correlation(strata)

    found = measures.of_heads(ranks(heads), SAME, measures.SMALL_CORRELATION, words.as_correlation)
    others = {
        name: one
        for name in (DECODER_SELF, CROSS)
        if (one := ranks(head for run in runs for head in run.each_head(name)))
    }
    corrected = map(words.p_value, statistics.holm([one.greater for one in others.values()]))
    beside = {
        name: f"{words.number(one.mean)} ({p} after Holm)"
        for (name, one), p in zip(others.items(), corrected, strict=True)
    }
    layers = [[head for head in heads if head.layer == n] for n in sorted({h.layer for h in heads})]
    shown = ", ".join(words.number(one.mean if (one := ranks(own)) else 0) for own in layers)
    return found.beside(f"by layer from below {shown}; {words.listed(beside)}")


def positional(corpus: Corpus, model: str) -> Finding:
    def named(head: Head) -> str:
        offset = int(roles.adjacent_share(head)[1])
        return f"{head.name} at {words.number(offset, 0, signed=True)}"

    heads = measures.encoders(corpus, model)
    return measures.heads_exist(
        heads, roles.is_positional, lambda head: roles.adjacent_share(head)[0], named
    )


def positional_important(corpus: Corpus, model: str) -> Finding:
    heads = _encoder(corpus, model)
    tests = {}
    for name, score in (("relevance", _relevance), ("confidence", _confidence)):
        strata = statistics.strata_of(heads, _layer, score, roles.is_positional)
        if (tested := statistics.superiority(strata)) is None:
            raise record.NothingToJudge(NO_POSITIONAL)
        tests[name] = tested
    greater = statistics.holm([tested.greater for tested in tests.values()])
    less = statistics.holm([tested.less for tested in tests.values()])
    found = {}
    for (name, tested), *p in zip(tests.items(), greater, less, strict=True):
        decision = rules.over_heads(tested, measures.SMALL_SUPERIORITY, (p[0], p[1]))
        found[name] = Finding(decision, words.as_share(tested.values), words.p_value(p[0]))
    return several(found)


def positional_confident(corpus: Corpus, model: str) -> Finding:
    values = [_confidence(head) for head in _encoder(corpus, model) if roles.is_positional(head)]
    if not values:
        raise record.NothingToJudge(NO_POSITIONAL)
    above = sum(value > 0.8 for value in values)
    decision = Decision(FAILS, f"{len(values) - above} of {len(values)} do not")
    if len(corpus.of(model=model, **PLAIN)) < 2:
        decision = ONE_SEED
    elif above == len(values):
        decision = Decision(HOLDS, "all of them do")
    spread = f"from {min(values):.2f} to {max(values):.2f}"
    return Finding(decision, f"{above} of {len(values)} above 0.8; {spread}", "counted")


def syntactic(corpus: Corpus, model: str) -> Finding:
    heads = measures.encoders(corpus, model)
    such: set[tuple[int, str]] = set()
    for own in heads:
        cases = [(head, one) for head in own for one in roles.accuracies(head)]
        if not cases:
            raise record.NotInRecord("parses of the source were not given: there are no relations")
        p_values = [
            stats.binomtest(round(one.share * one.arcs), one.arcs, one.baseline, "greater").pvalue
            for _, one in cases
        ]
        for (head, one), p in zip(cases, statistics.holm(p_values), strict=True):
            if one.is_syntactic and p < LEVEL:
                such.add((head.run.seed, head.name))

    def best(head: Head) -> roles.Accuracy:
        return max(roles.accuracies(head), key=lambda one: one.above)

    def named(head: Head) -> str:
        one = best(head)
        shares = f"{100 * one.share:.0f} % against {100 * one.baseline:.0f} %"
        return f"{head.name} on {one.case}: {shares}"

    return measures.heads_exist(
        heads, lambda head: (head.run.seed, head.name) in such, lambda head: best(head).above, named
    )


def rare_words(corpus: Corpus, model: str) -> Finding:
    heads = measures.encoders(corpus, model, layer=0)
    if all(head.get("rare_word", "two_rarest") is None for own in heads for head in own):
        raise record.NotInRecord("the analyses have no share of rare words")
    return measures.heads_exist(heads, roles.is_rare_word, roles.rare_word_share)


def rare_words_relevant(corpus: Corpus, model: str) -> Finding:
    firsts, chances = [], []
    for heads in measures.encoders(corpus, model, layer=0):
        rare = [head for head in heads if roles.is_rare_word(head)]
        if rare:
            firsts.append(max(map(_relevance, rare)) >= max(map(_relevance, heads)))
            # By chance, one of them comes first with a probability equal to their share
            chances.append(len(rare) / len(heads))
    if not firsts:
        raise record.NothingToJudge("no head of the lowest layer looks at rare words")
    # Seeds are independent; if one of them says no, p is 1
    p = float(numpy.prod(chances)) if all(firsts) else 1.0
    decision = rules.in_each(firsts, "it as the most relevant head")
    if decision.verdict == HOLDS and p >= LEVEL:
        decision = Decision(UNDECIDED, "chance alone might do as much")
    values = f"{sum(firsts)} of {len(firsts)} seeds with such a head"
    return Finding(decision, values, f"against any head of the layer: {words.p_value(p)}")


def roles_relevant(corpus: Corpus, model: str) -> Finding:
    heads = measures.encoders(corpus, model)
    each = (head for own in heads for head in own)
    found = measures.correlated(each, _layer, roles.role_score, _relevance, SAME)
    having = [sum(bool(roles.roles_of(head)) for head in own) for own in heads]
    found = found.beside(f"{words.counts(having)} heads have a role")
    if any(having):
        return found
    return found.but(UNDECIDED, roles.without_roles(corpus.of(model=model, **PLAIN)))


# --- section 6: pruning -------------------------------------------------------


def remaining_roles(corpus: Corpus, model: str) -> Finding:
    pairs = pruned_with_baseline(corpus, model, ALL)
    both = [[roles.encoder_roles(run) for run in pair] for pair in pairs]
    counts = [(len(before), len(before & after)) for after, before in both if before]
    if not counts:
        without = roles.without_roles([baseline for _, baseline in pairs])
        raise record.NothingToJudge(f"before pruning {without}")
    decision = rules.in_each([had == has for had, has in counts], "all roles left")
    return Finding(decision, "; ".join(f"{has} of {had} left" for had, has in counts), "counted")


def roles_survive(corpus: Corpus, model: str, budget: str) -> Finding:
    pairs = pruned_with_baseline(corpus, model, budget)
    found = survivors(pairs, [ENCODER_SELF], lambda head: ENCODER_SELF, roles.role_score)
    baselines = [baseline for _, baseline in pairs]
    if any(map(roles.encoder_roles, baselines)):
        return found
    return found.but(UNDECIDED, f"before pruning {roles.without_roles(baselines)}")


def positional_remain(corpus: Corpus, model: str) -> Finding:
    draws = []
    for pruned, baseline in pruned_with_baseline(corpus, model, ALL):
        heads = {head.name: roles.is_positional(head) for head in baseline.each_head(ENCODER_SELF)}
        remaining = heads.keys() & measures.remaining_heads(pruned)
        both = sum(heads[name] for name in remaining)
        draws.append(
            statistics.Draw(baseline.seed, len(heads), sum(heads.values()), len(remaining), both)
        )
    tested = statistics.chosen_more_often(draws)
    found = measures.of_heads(tested, NO_POSITIONAL, measures.SMALL_SHARE, words.signed)
    _, of_all, marked, chosen, both = numpy.sum(draws, axis=0)
    others = f"{both} of {marked} positional heads, {chosen - both} of {of_all - marked} others"
    return found._replace(values=f"{others}; difference of shares {found.values}")


def survive(corpus: Corpus, model: str, score: str, within: str) -> Finding:
    """Also shows the comparison within layers, as the layer affects which heads are left, and that
    of a search in the encoder alone, where heads of other attentions do not compete."""

    def of_head(head: Head) -> float:
        return head.value(score)

    pairs = pruned_with_baseline(corpus, model, ALL)
    among = _layer if within == "layer" else lambda head: head.attention
    found = {"": survivors(pairs, ATTENTIONS, among, of_head)}
    if within != "layer":
        found["of heads of the same layer "] = survivors(pairs, ATTENTIONS, _layer, of_head)
    try:
        pairs = pruned_with_baseline(corpus, model, measures.ENCODER)
        alone = "in the encoder alone, 4 of 24 encoder heads, of heads of the same layer "
        found[alone] = survivors(pairs, [ENCODER_SELF], _layer, of_head)
    except record.NotInRecord:
        pass
    beside = [f"{name}{one.values}, {one.test}" for name, one in found.items()]
    return found[""]._replace(values="; ".join(beside))


def pruned(corpus: Corpus, model: str) -> Finding:
    try:
        return measures.loss_by_pruning(corpus, model, measures.HALF, 0.25)
    except record.NotInRecord:
        found = measures.loss_by_pruning(corpus, model, ALL, 0.25)
    if found.decision.verdict != FAILS:
        return found
    why = f"of two thirds it is not so, which leaves half open: {found.decision.why}"
    return found.but(UNDECIDED, why)


def scratch(corpus: Corpus, model: str) -> Finding:
    pairs = measures.pruned_and_other(corpus, model, ALL, record.SCRATCH)
    found = measures.compare_bleu(pairs, rules.more_than, margin=0.1)
    return found.beside(f"{pairs[0][0].updates} and {pairs[0][1].updates} updates in all")


Counts = Mapping[str, int]  # the number of heads of each attention


def _counts(pairs: Pairs) -> list[Counts]:
    return [{name: sum(run.heads[name]) for name in ATTENTIONS} for run, _ in pairs]


def _counted(counts: Sequence[Counts]) -> str:
    """Such as ``encoder-self 6, 5, 7; decoder-self 9, 9, 8; cross 9, 10, 9 heads``."""
    return f"{words.listed({name: words.counts([own[name] for own in counts]) for name in ATTENTIONS})} heads"


def _remain(pairs: Pairs, counts: Sequence[Counts], contests: Sequence[tuple[str, str]]) -> Finding:
    """Whether heads of one attention remain more often than those of another, in each contest."""

    def shown(values: Sequence[float]) -> str:
        return f"{words.signed(values)} {words.of_seeds(values, signs=True)}"

    found = {}
    for one, other in contests:
        draws = []
        for (_, run), own in zip(pairs, counts, strict=True):
            ours, theirs = sum(run.heads[one]), sum(run.heads[other])
            both = own[one] + own[other]
            draws.append(statistics.Draw(run.seed, ours + theirs, ours, both, own[one]))
        tested = statistics.chosen_more_often(draws)
        contest, missing = f"{one} against {other}", "the models have one attention alone"
        found[contest] = measures.of_heads(tested, missing, measures.SMALL_SHARE, shown)
    return several(found)


def encoder_first(corpus: Corpus, model: str) -> Finding:
    pairs = pruned_with_baseline(corpus, model, ALL)
    points = [half_closed(*pair) for pair in pairs]
    found = _remain(pairs, points, [(name, ENCODER_SELF) for name in (DECODER_SELF, CROSS)])
    values = f"{_counted(points)} open; {found.values}; at the end {_counted(_counts(pairs))} left"
    return found._replace(values=values)


def half_closed(pruned: Run, baseline: Run) -> Counts:
    """The open heads of each attention when half of all heads were first closed: at the start none is
    closed, and at the end the budget decides. Means over updates are rounded to whole heads."""
    whole = sum(sum(layers) for layers in baseline.heads.values())
    for point in sorted(pruned.search or (), key=lambda point: point["updates"]):
        if 2 * sum(point["open"].values()) <= whole:
            return {attention: round(heads) for attention, heads in point["open"].items()}
    raise record.NotInRecord(f"the record has no course of the search of {pruned.run}")


def cross_last(corpus: Corpus, model: str) -> Finding:
    pairs = pruned_with_baseline(corpus, model, ALL)
    counts = _counts(pairs)
    found = _remain(pairs, counts, [(CROSS, name) for name in (ENCODER_SELF, DECODER_SELF)])
    return found._replace(values=f"{_counted(counts)} left; {found.values}")


def decoder_layers(corpus: Corpus, model: str) -> Finding:
    runs = [pruned for pruned, _ in pruned_with_baseline(corpus, model, ALL)]
    layers = {}
    for name in (DECODER_SELF, CROSS):
        counts = [run.heads[name] for run in runs]
        if not all(map(sum, counts)):
            raise record.NothingToJudge(f"a model has no head of {name} left")
        layers[name] = numpy.array([numpy.average(range(len(n)), weights=n) for n in counts])
    found = measures.more(layers[CROSS] - layers[DECODER_SELF], 0.1)
    return found.beside(", ".join(f"{name} {own.mean():.2f}" for name, own in layers.items()))
