"""ROUGE-1, ROUGE-2 and ROUGE-L of summaries, by the package ``rouge-score``.

That package finds words and stems, and matches one summary with one reference. It follows
ROUGE-1.5.5, the script behind published numbers. What it lacks is done here as in ROUGE-1.5.5
(subroutines ``readText`` and ``computeNGramScore``):

- ``-b N``: summary *and* references are cut after N bytes. Bytes between sentences do not count.
- ``-f A``: with several references, matches and lengths are summed before dividing, so each
  reference counts by its length. rouge-score's ``score_multi`` takes the best one instead.

ROUGE-L treats a summary as one sequence. With marked sentences, it uses the union of their longest
common subsequences, as ROUGE-1.5.5 does with one sentence per line (``rougeLsum``).

Source: Lin 2004, *ROUGE: A Package for Automatic Evaluation of Summaries*, and ROUGE-1.5.5.
Recall at 75 bytes is the score of DUC 2004, task 1 (Rush et al. 2015, *A Neural Attention Model
for Abstractive Sentence Summarization*, section 7).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairseq_entmax.error_messages import required
from fairseq_entmax.progress import watched

ROUGE_1, ROUGE_2, ROUGE_L = TYPES = ("rouge1", "rouge2", "rougeL")
PRECISION, RECALL, F1 = STATISTICS = ("precision", "recall", "f1")
NAMES = {ROUGE_1: "ROUGE-1", ROUGE_2: "ROUGE-2", ROUGE_L: "ROUGE-L"}


@dataclass(frozen=True)
class RougeOptions:
    """How ROUGE is computed.

    Attributes:
        stem: treat words of more than three letters as equal if their Porter stems are.
        max_bytes: cut summaries and references after this many bytes, 1 or more; None does not.
        sentences: the text after or between sentences; None treats a summary as one sentence.
            With a tag such as ``</t>``, its counterpart ``<t>`` is not a word either.
    """

    stem: bool = True
    max_bytes: int | None = None
    sentences: str | None = None

    def __post_init__(self) -> None:
        if self.sentences is not None and not self.sentences.strip():
            given = f"the end of a sentence (--sentences, --rouge-sentences) is {self.sentences!r}"
            raise ValueError(f"{given}: give a text such as '</t>'")

    @property
    def statistic(self) -> str:
        """The statistic that compares systems: recall if summaries are cut, as in DUC, else F1."""
        return F1 if self.max_bytes is None else RECALL


class Score(NamedTuple):
    """The scores of one summary, in percent."""

    precision: float
    recall: float
    f1: float


class Rouge:
    def __init__(self, options: RougeOptions | None = None) -> None:
        self.options = options or RougeOptions()
        scorer = require_rouge_score()
        of_l = ROUGE_L if self.options.sentences is None else "rougeLsum"
        self._types = {ROUGE_1: ROUGE_1, ROUGE_2: ROUGE_2, ROUGE_L: of_l}
        self._tokenizer = _Tokenizer(self.options.stem)
        self._scorer = scorer.RougeScorer(list(self._types.values()), tokenizer=self._tokenizer)

    def score(self, summary: str, references: Sequence[str]) -> dict[str, Score]:
        """Score a summary against one or more references."""
        text = self._text(summary)
        # Matches, words of the summary, and words of the reference, summed over references
        sums = {kind: [0, 0, 0] for kind in TYPES}
        for reference in map(self._text, references):
            scores = self._scorer.score(reference, text)
            for kind, numbers in sums.items():
                words = self._units(kind, reference)
                # Recall is the whole number of matches divided by this number
                numbers[0] += round(scores[self._types[kind]].recall * words)
                numbers[1] += self._units(kind, text)
                numbers[2] += words
        return {kind: _score(*numbers) for kind, numbers in sums.items()}

    def is_empty(self, text: str) -> bool:
        """Whether a text has no word after cutting; marks of sentences do not count."""
        return not self._tokenizer.tokenize(self._text(text))

    def _units(self, kind: str, text: str) -> int:
        """The number of words in a text or, for ROUGE-2, of pairs of words."""
        words = len(self._tokenizer.tokenize(text))
        return max(words - 1, 0) if kind == ROUGE_2 else words

    def _text(self, text: str) -> str:
        """A text as rouge-score expects it: cut, and with one sentence per line."""
        sentences = _split(text.replace("\n", " "), self.options.sentences)
        remaining = self.options.max_bytes
        if remaining is None:
            return "\n".join(sentences)
        cut = []
        for sentence in sentences:
            encoded = sentence.encode()[:remaining]
            remaining -= len(encoded)
            cut.append(encoded.decode(errors="ignore"))  # drops a character cut in two
        return "\n".join(cut)


def score_documents(
    rouge: Rouge, summaries: Sequence[str], references: Sequence[Sequence[str]]
) -> list[dict[str, Score]]:
    documents = zip(summaries, *references, strict=True)
    each = watched(documents, "ROUGE", len(summaries), unit="documents")
    return [rouge.score(summary, texts) for summary, *texts in each]


def require_rouge_score() -> Any:
    """Import ``rouge_score.rouge_scorer``, or say how to install it."""
    install = "ROUGE needs rouge-score: run pip install 'fairseq-entmax[summaries]'"
    return required("rouge_score.rouge_scorer", install)


class _Tokenizer:
    """rouge-score's tokenizer, with caches of stems and of the words of texts."""

    def __init__(self, stem: bool) -> None:
        from nltk.stem import porter
        from rouge_score import tokenize

        self.stem = functools.lru_cache(maxsize=1 << 17)(porter.PorterStemmer().stem)
        self.tokenize = functools.lru_cache(maxsize=1 << 15)(
            lambda text: tokenize.tokenize(text, self if stem else None)
        )


def _score(matches: int, summary: int, references: int) -> Score:
    precision = matches / summary if summary else 0.0
    recall = matches / references if references else 0.0
    f1 = 2 * precision * recall / (precision + recall) if matches else 0.0
    return Score(100 * precision, 100 * recall, 100 * f1)


def _split(text: str, separator: str | None) -> list[str]:
    """The sentences of a text, without empty ones."""
    if separator is None:
        return [text.strip()]
    if tag := re.fullmatch(r"</?(\w+)>", separator):
        separator = f"</{tag[1]}>"
        text = text.replace(f"<{tag[1]}>", separator)
    parts = (part.strip() for part in text.split(separator))
    return [part for part in parts if part]
