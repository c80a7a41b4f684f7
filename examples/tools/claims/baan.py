"""Baan et al. 2019, *Understanding Multi-Head Attention in Abstractive Summarization*.

The paper is about summaries and ROUGE; here its claims are tested on translation and BLEU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from claims import measures, rules, words
from claims.measures import ALL, LITTLE, PLAIN, SOFTMAX, SPARSEMAX
from claims.record import ATTENTIONS, CROSS, ENCODER_SELF, Corpus, Head, NotInRecord, Run
from claims.roles import encoder_roles, role_score, without_roles
from claims.rules import FAILS, HOLDS, LEVEL, UNDECIDED, Decision, Finding
from fairseq_entmax.analysis.report.roles import RELATIVE_POSITION

# The paper leaves out decoder-self, "its attention spans increase"
OF_PAPER = (ENCODER_SELF, CROSS)
LOSS, BLEU = "loss", "bleu"


def removals(run: Run, score: str) -> Mapping[str, Mapping[str, Any]]:
    """By the head's name, what changes without the head, and p after Holm's correction."""
    found = {
        removal["heads"][0]: removal[score]
        for removal in (run.ablation or {}).get("removals", [])
        if len(removal["heads"]) == 1 and (removal.get(score) or {}).get("p_holm") is not None
    }
    if not found:
        raise NotInRecord(f"the record has no ablation of {run.run} with {score}")
    return found


def _matters(removal: Mapping[str, Any]) -> bool:
    return removal["p_holm"] < LEVEL


def _ablated(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs with an ablation; the first run, which lacks one, if none has any."""
    return [run for run in runs if run.ablation] or runs[:1]


def _no_head_matters(runs: Sequence[Run], score: str, sign: int, unit: str) -> Finding:
    found = [removals(run, score) for run in runs]
    shares = [measures.each(own.values(), _matters).mean() for own in found]
    parts = []
    for attention in ATTENTIONS:
        of_it = [one for own in found for name, one in own.items() if name.startswith(attention)]
        if of_it:
            parts.append(f"{attention} {measures.each(of_it, _matters).mean():.2f}")
    most = [words.number(max(sign * one["change"] for one in own.values())) for own in found]
    decision = rules.in_each(shares, "a head whose removal makes a significant difference")
    return Finding(
        rules.negated(decision),
        f"share of heads {words.as_share(shares)}; {', '.join(parts)}; the most harmful costs "
        f"{', '.join(most)} {unit}",
        f"of each head, over sentences, after Holm: p < {LEVEL}",
    )


def removal_bleu(corpus: Corpus, model: str) -> Finding:
    runs = _ablated(corpus.of(model=model, **LITTLE))
    found = _no_head_matters(runs, BLEU, -1, "BLEU")
    test = (runs[0].ablation or {})["significance"]
    # The smallest p that the test could give; older files have a bootstrap
    least = len(removals(runs[0], BLEU)) / (test.get("trials", test.get("bootstrap")) + 1)
    if found.decision.verdict != HOLDS or least < LEVEL:
        return found
    limit = f"p of BLEU cannot be below {least:.3f} after Holm's correction"
    return found.but(UNDECIDED, f"{found.decision.why}, but {limit}")


def removal_loss(corpus: Corpus, model: str) -> Finding:
    return _no_head_matters(_ablated(corpus.of(model=model, **PLAIN)), LOSS, 1, "nats a token")


def _costs(
    runs: Sequence[Run], attentions: Iterable[str], score: Callable[[Head], float]
) -> Finding:
    """The correlation, within attentions, of a score with the loss without the head."""
    harms = {run.seed: removals(run, LOSS) for run in runs}
    heads = [
        head for run in runs for head in run.each_head(*attentions) if head.name in harms[run.seed]
    ]
    return measures.correlated(
        heads,
        lambda head: head.attention,
        score,
        lambda head: harms[head.run.seed][head.name]["change"],
        "all heads are alike, or cost the same",
    )


def interpretable(corpus: Corpus, model: str) -> Finding:
    runs = corpus.of(model=model, **PLAIN)
    found = _costs(runs, [ENCODER_SELF], role_score)
    if any(map(encoder_roles, runs)):
        return found.denied()
    return found.but(UNDECIDED, without_roles(runs))


def _position(head: Head) -> float:
    return head.value("relative_position")


def _neighbours(found: Finding, runs: Sequence[Run], remaining: Sequence[set[str]] = ()) -> Finding:
    """A finding on heads that look at neighbours: undecided if there are none."""
    such = [
        {head.name for head in run.each_head(*OF_PAPER) if _position(head) >= RELATIVE_POSITION}
        for run in runs
    ]
    having = sum(map(len, such))
    often = f"look at neighbours for {100 * RELATIVE_POSITION:.0f} % of the queries"
    found = found.beside(f"{having} heads of {len(runs)} models {often}")
    if remaining:
        both = (len(one & names) for one, names in zip(such, remaining, strict=True))
        found = found.beside(f"{sum(both)} of them are left")
    return found if having else found.but(UNDECIDED, f"no heads {often}")


def position_matters(corpus: Corpus, model: str) -> Finding:
    runs = corpus.of(model=model, **PLAIN)
    return _neighbours(_costs(runs, OF_PAPER, _position), runs)


def position_remains(corpus: Corpus, model: str) -> Finding:
    pairs = measures.pruned_with_baseline(corpus, model, ALL)
    found = measures.survivors(pairs, OF_PAPER, lambda head: head.attention, _position)
    remaining = [measures.remaining_heads(pruned) for pruned, _ in pairs]
    return _neighbours(found, [baseline for _, baseline in pairs], remaining)


def zeros(corpus: Corpus) -> Finding:
    runs = corpus.of(model="sparse-encoder", **LITTLE)
    zeros = 1 - measures.each(runs, measures.mean_of([ENCODER_SELF], "density"))
    decision = rules.more_than(zeros - 0.97, against="0.97")
    data = runs[0].analysis["data"]
    tokens = data["source_tokens"] / data["sentences"]
    if decision.verdict == FAILS:
        why = f"3 % of the {tokens:.0f} tokens of a sentence are {0.03 * tokens:.1f}, and a query has one key or more"
        decision = Decision(UNDECIDED, why)
    shown = f"{words.over_seeds(zeros, 3)}; {words.number(tokens * (1 - zeros.mean()), 1)} keys of {tokens:.0f} a query"
    return Finding(decision, shown, "interval over seeds, of what is above 0.97")


def more_in_sparsemax(corpus: Corpus, measure: str) -> Finding:
    mean = measures.mean_of(OF_PAPER, measure)
    pairs = corpus.pairs({"model": SPARSEMAX}, {"model": SOFTMAX}, **PLAIN)
    found = measures.more(measures.gap(pairs, mean), 0.02, digits=3)
    return found._replace(values=f"{measures.means(pairs, mean)}; difference {found.values}")
