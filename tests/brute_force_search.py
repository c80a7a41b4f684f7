"""What a search over a toy vocabulary finds, in plain Python floats.

`every_sequence` enumerates all sequences that the options allow and whose probability is not zero.
`search` is a plain beam search that also knows whether it discarded anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.sparse_toys import EOS, PAD, UNK

Words = tuple[int, ...]


@dataclass
class Toys:
    """The sources of the next word's probabilities, for one source sentence."""

    tables: Sequence[Callable[[Words, Words], dict[int, float]]]
    source: Words  # with its end
    language_model: Callable[[Words, Words], dict[int, float]] | None = None
    lm_weight: float = 0.0
    temperature: float = 1.0
    unkpen: float = 0.0
    min_len: int = 1
    max_len: int = 8
    prefix: Words = ()
    prefix_steps: int = 0  # steps at which some sentence of the batch has a prefix
    match_source_len: bool = False
    no_repeat_ngram_size: int = 0
    coverage_penalty: float = 0.0  # toys attend to all source words equally
    constraints: Words = ()  # words that have to occur
    in_order: bool = False
    only: Callable[[Words], Sequence[int]] | None = None  # words that may follow

    def allowed(self, words: Words, ignoring_length: bool = False) -> dict[int, float]:
        """Log probabilities of the words that may come next."""
        step = len(words)
        next = self.log_probs(words)
        if step >= self.max_len and not ignoring_length:
            next = {word: value for word, value in next.items() if word == EOS}
        elif step < min(len(self.prefix), self.max_len):
            return {self.prefix[step]: next.get(self.prefix[step], 0.0)}
        elif self.prefix_steps <= step < self.min_len:
            next.pop(EOS, None)
        unblocked = {word: value for word, value in next.items() if not self.repeats(words, word)}
        next = unblocked or next
        if self.match_source_len:
            if step < len(self.source):
                next.pop(EOS, None)
            else:
                next = {EOS: 0.0}
        if words and not meets(words, self.constraints, self.in_order):  # as in fairseq
            next.pop(EOS, None)
        if self.only is not None:
            next = {word: value for word, value in next.items() if word in self.only(words)}
        return next

    def log_prob(self, words: Words, is_cut: bool = False) -> float:
        """Log probability of a sequence with its end, or, if it is cut off, of its words."""
        total = 0.0
        for place, word in enumerate(words[:-1] if is_cut else words):
            total += self.allowed(words[:place])[word]
        return total

    def log_probs(self, words: Words) -> dict[int, float]:
        mean: dict[int, float] = {}
        for table in self.tables:
            probs = table(self.source, words)
            cooled = {word: prob ** (1 / self.temperature) for word, prob in probs.items()}
            for word, weight in cooled.items():
                share = weight / sum(cooled.values()) / len(self.tables)
                mean[word] = mean.get(word, 0.0) + share
        next = {word: math.log(prob) for word, prob in mean.items() if word != PAD}
        if self.language_model is not None and self.lm_weight:
            probs = self.language_model((), words)
            next = {
                word: value + self.lm_weight * math.log(probs[word])
                for word, value in next.items()
                if word in probs
            }
        if UNK in next:
            next[UNK] -= self.unkpen
        cost = self.coverage_penalty * (len(words) >= len(self.source))
        return {word: value - cost for word, value in next.items() if value > -math.inf}

    def repeats(self, words: Words, word: int) -> bool:
        size, all = self.no_repeat_ngram_size, (*words, word)
        ngrams = [all[start : start + size] for start in range(len(all) - size + 1)]
        return bool(size) and ngrams[-1:] != [] and ngrams[-1] in ngrams[:-1]


def meets(words: Words, constraints: Words, in_order: bool) -> bool:
    """Whether the required words, which are all different, occur."""
    if not in_order:
        return set(constraints) <= set(words)
    rest = iter(words)
    return all(word in rest for word in constraints)


def every_sequence(toys: Toys, words: Words = ()) -> Iterator[tuple[Words, float]]:
    """Each sequence with its end, and its log probability."""
    for word, value in toys.allowed(words).items():
        if word == EOS:
            yield (*words, EOS), value
        else:
            for rest, total in every_sequence(toys, (*words, word)):
                yield rest, value + total


def search(toys: Toys, beam: int) -> tuple[list[tuple[Words, float]], bool, bool]:
    """Hypotheses with log probabilities, whether none was discarded, and whether they are cut."""
    live: list[tuple[Words, float]] = [((), 0.0)]
    ended: list[tuple[Words, float]] = []
    is_exact = True
    while True:
        candidates = [
            ((*words, word), total + value)
            for words, total in live
            for word, value in toys.allowed(words).items()
        ]
        candidates.sort(key=lambda candidate: -candidate[1])
        room = beam - len(ended)
        now = [candidate for candidate in candidates[:beam] if candidate[0][-1] == EOS][:room]
        others = [candidate for candidate in candidates[: 2 * beam] if candidate[0][-1] != EOS][
            :beam
        ]
        ended += now
        at_end = any(len(words) >= toys.max_len for words, _ in live)
        if at_end and not toys.match_source_len:
            longer = (toys.allowed(words, ignoring_length=True) for words, _ in live)
            is_exact &= not any(set(next) - {EOS} for next in longer)
        if len(ended) == beam:
            return ended, is_exact and len(now) == len(candidates), False
        is_exact &= len(now) + len(others) == len(candidates)
        if not others:
            cut = [((*words, EOS), total) for words, total in live]
            return (ended, is_exact, False) if ended else (cut, False, True)
        live = others
