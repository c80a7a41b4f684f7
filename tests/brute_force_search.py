"""What fairseq's search finds, in plain Python floats: one sentence, no cache, no batch.

fairseq's search works as follows. Each step takes the 2 x beam best continuations of all
hypotheses. Those among the first `beam` that end are finished; the first `beam` others continue. It
stops when `beam` hypotheses are finished, or at the maximum length. It compares finished hypotheses
by their log probability, divided by a length penalty.

`every_sequence` enumerates all sequences that the options allow and whose probability is not zero.
`search` is a plain beam search that also knows whether it discarded anything.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.sparse_toys import EOS, PAD, UNK

Words = tuple[int, ...]


@dataclass
class Sentence:
    """A source, what gives the next word's probabilities, and options named as in fairseq."""

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
    may_repeat: Collection[int] = ()
    lenpen: float = 1.0
    length_penalty: str = "average"  # or "wu"
    unnormalized: bool = False
    coverage_penalty: float = 0.0
    attention: Callable[[Words], Sequence[float]] | None = None  # by default uniform
    required: Words = ()  # words that have to occur
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
        if words and not meets(words, self.required, self.in_order):  # as in fairseq
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
        if self.coverage_penalty and words:
            cost = self.coverage_penalty * (self.coverage(words) - self.coverage(words[:-1]))
            next = {word: value - cost for word, value in next.items()}
        return {word: value for word, value in next.items() if value > -math.inf}

    def coverage(self, words: Words) -> float:
        """OpenNMT-py's summary penalty of the steps up to the one after these words."""
        uniform = [1 / len(self.source)] * len(self.source)
        steps = [words[:number] for number in range(len(words) + 1)]
        weights = [uniform if self.attention is None else self.attention(step) for step in steps]
        return sum(max(sum(of_word), 1.0) for of_word in zip(*weights, strict=True))

    def repeats(self, words: Words, word: int) -> bool:
        size, all = self.no_repeat_ngram_size, (*words, word)
        if not 0 < size < len(all):
            return False
        ngrams = [all[start : start + size] for start in range(len(all) - size + 1)]
        return ngrams[-1] in ngrams[:-1] and not set(ngrams[-1]) & set(self.may_repeat)

    def divisor(self, length: int) -> float:
        """The divisor of the log probability of a hypothesis of this length, with its end."""
        if self.unnormalized:
            return 1.0
        return (length if self.length_penalty == "average" else (5 + length) / 6) ** self.lenpen

    def ranked(self, hypotheses: Sequence[tuple[Words, float]]) -> list[tuple[Words, float]]:
        """Hypotheses with scores in the place of log probabilities, best first."""
        scored = [(words, total / self.divisor(len(words))) for words, total in hypotheses]
        return sorted(scored, key=lambda each: -each[1])


def known_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options of a command that a `Sentence` has."""
    fields = Sentence.__dataclass_fields__
    return {name: value for name, value in options.items() if name in fields}


def meets(words: Words, required: Words, in_order: bool) -> bool:
    """Whether the required words, which are all different, occur."""
    if not in_order:
        return set(required) <= set(words)
    rest = iter(words)
    return all(word in rest for word in required)


def every_sequence(sentence: Sentence, words: Words = ()) -> Iterator[tuple[Words, float]]:
    """Each sequence with its end, and its log probability."""
    for word, value in sentence.allowed(words).items():
        if word == EOS:
            yield (*words, EOS), value
        else:
            for rest, total in every_sequence(sentence, (*words, word)):
                yield rest, value + total


def search(sentence: Sentence, beam: int) -> tuple[list[tuple[Words, float]], bool, bool]:
    """Hypotheses with scores, whether none was discarded, and whether they are cut off."""
    live: list[tuple[Words, float]] = [((), 0.0)]
    ended: list[tuple[Words, float]] = []
    is_exact = True
    while True:
        candidates = [
            ((*words, word), total + value)
            for words, total in live
            for word, value in sentence.allowed(words).items()
        ]
        candidates.sort(key=lambda candidate: -candidate[1])
        room = beam - len(ended)
        now = [candidate for candidate in candidates[:beam] if candidate[0][-1] == EOS][:room]
        others = [candidate for candidate in candidates[: 2 * beam] if candidate[0][-1] != EOS]
        others = others[:beam]
        ended += now
        at_end = any(len(words) >= sentence.max_len for words, _ in live)
        if at_end and not sentence.match_source_len:
            longer = (sentence.allowed(words, ignoring_length=True) for words, _ in live)
            is_exact &= not any(set(next) - {EOS} for next in longer)
        if len(ended) == beam:
            return sentence.ranked(ended), is_exact and len(now) == len(candidates), False
        is_exact &= len(now) + len(others) == len(candidates)
        if not others:
            if ended:
                return sentence.ranked(ended), is_exact, False
            return sentence.ranked([((*words, EOS), total) for words, total in live]), False, True
        live = others
