"""A plain beam search: one sentence, no cache, no batch, in float64.

It describes fairseq's search, and what `entmax_summarization` adds to it, for any encoder-decoder
model of fairseq: each hypothesis goes through the whole decoder alone.

fairseq's search works as follows. Each step takes the 2 x beam best continuations of all
hypotheses. Those among the first `beam` that end are finished; the first `beam` others continue. It
stops when `beam` hypotheses are finished, or at the maximum length. It compares finished hypotheses
by their log probability, divided by a length penalty.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

IMPOSSIBLE = -math.inf


@dataclass
class Search:
    """Options named as in fairseq's commands."""

    beam: int = 5
    nbest: int = 1
    max_len: int = 20  # words without the end of the sentence
    min_len: int = 1
    temperature: float = 1.0
    lenpen: float = 1.0
    length_penalty: str = "average"  # or "wu", or "none"
    coverage_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    may_repeat: Collection[int] = ()
    unkpen: float = 0.0
    prefix: Sequence[int] = ()


@dataclass
class Hypothesis:
    words: list[int] = field(default_factory=list)
    log_prob: float = 0.0  # with the coverage penalty so far
    coverage: list[float] = field(default_factory=list)  # one number per source word
    score: float = math.nan  # set when the hypothesis has ended


def decode(
    models: Sequence[Any], source: torch.Tensor, dictionary: Any, search: Search
) -> list[Hypothesis]:
    """The best hypotheses of a sentence, best first; model probabilities are averaged."""
    source = source[None]
    lengths = torch.tensor([source.size(1)])
    with torch.no_grad():
        encoded = [model.encoder(source, lengths) for model in models]
        live = [Hypothesis(coverage=[0.0] * source.size(1))]
        ended: list[Hypothesis] = []
        while live and len(ended) < search.beam:
            candidates = []
            for hypothesis in live:
                log_probs, attention = next_word(models, encoded, hypothesis, dictionary, search)
                coverage = [a + b for a, b in zip(hypothesis.coverage, attention, strict=True)]
                growth = penalty(coverage) - penalty(hypothesis.coverage)
                allow(log_probs, hypothesis.words, dictionary, search)
                for word, log_prob in enumerate(log_probs):
                    if log_prob > IMPOSSIBLE:
                        total = hypothesis.log_prob + log_prob - search.coverage_penalty * growth
                        words = [*hypothesis.words, word]
                        candidates.append(Hypothesis(words, total, coverage))
            candidates.sort(key=lambda candidate: -candidate.log_prob)
            live = []
            for rank, candidate in enumerate(candidates[: 2 * search.beam]):
                if candidate.words[-1] != dictionary.eos():
                    if len(live) < search.beam:
                        live.append(candidate)
                elif rank < search.beam and len(ended) < search.beam:
                    candidate.score = candidate.log_prob / divisor(len(candidate.words), search)
                    ended.append(candidate)
    ended.sort(key=lambda hypothesis: -hypothesis.score)
    return ended[: search.nbest]


def next_word(
    models: Sequence[Any], encoded: Any, hypothesis: Hypothesis, dictionary: Any, search: Search
) -> tuple[list[float], list[float]]:
    """Log probabilities of the next word, and the attention to the source at this step."""
    input = torch.tensor([[dictionary.eos(), *hypothesis.words]])
    probs, attentions = [], []
    for model, encoder_out in zip(models, encoded, strict=True):
        output, extra = model.decoder(input, encoder_out=encoder_out)
        # A copy model returns log probabilities, which serve as scores too
        scores = output[0, -1].double() / search.temperature
        probs.append(torch.log_softmax(scores, dim=-1).exp())
        attention = extra if isinstance(extra, torch.Tensor) else extra["attn"][0]
        attentions.append(attention[0, -1].double())
    mean, attention = torch.stack(probs).mean(dim=0), torch.stack(attentions).mean(dim=0)
    return mean.log().tolist(), attention.tolist()


def allow(log_probs: list[float], words: list[int], dictionary: Any, search: Search) -> None:
    """Make words that the options forbid impossible, in place."""
    step, eos = len(words), dictionary.eos()
    log_probs[dictionary.pad()] = IMPOSSIBLE
    log_probs[dictionary.unk()] -= search.unkpen
    if step >= search.max_len:
        log_probs[:] = [
            value if word == eos else IMPOSSIBLE for word, value in enumerate(log_probs)
        ]
    if step < len(search.prefix) and step < search.max_len:
        forced = search.prefix[step]
        log_probs[:] = [
            value if word == forced else IMPOSSIBLE for word, value in enumerate(log_probs)
        ]
    elif step < search.min_len:
        log_probs[eos] = IMPOSSIBLE
    before = list(log_probs)
    for word in range(len(log_probs)):
        if repeats([*words, word], search.no_repeat_ngram_size, search.may_repeat):
            log_probs[word] = IMPOSSIBLE
    if max(log_probs) == IMPOSSIBLE:  # if nothing else is possible, a repetition is allowed
        log_probs[:] = before


def repeats(words: Sequence[int], size: int, may_repeat: Collection[int]) -> bool:
    """Whether the last n-gram has occurred before."""
    if size <= 0 or len(words) <= size:
        return False
    ngrams = [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]
    return ngrams[-1] in ngrams[:-1] and not set(ngrams[-1]) & set(may_repeat)


def penalty(coverage: Sequence[float]) -> float:
    """OpenNMT-py's summary penalty: `sum_i max(coverage_i, 1)`, less the number of source words."""
    return sum(max(attention, 1.0) for attention in coverage) - len(coverage)


def divisor(length: int, search: Search) -> float:
    """The divisor of the log probability of a hypothesis with this number of words."""
    if search.length_penalty == "wu":
        return (5 + length) ** search.lenpen / (5 + 1) ** search.lenpen
    return 1.0 if search.length_penalty == "none" else length**search.lenpen
