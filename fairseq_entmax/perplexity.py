"""``fairseq-eval-lm`` of a model that gives words probability exactly zero.

fairseq means to leave such words out of its sum, and to say so. But its message ends in a
traceback for each sample, the perplexity that it prints is that of the other words, and with
``--output-word-probs`` it is out of step. Here the words are counted, and the perplexity is
infinite, as it is.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

# Of fairseq_cli.eval_lm, under whatever name that was loaded
EVALUATION = "fairseq_cli.eval_lm"
# A score in what --output-word-probs logs; what is no score has one behind it
_NO_NUMBER = re.compile(r"\[nan\](?=\t|$)")


@dataclass
class WordCounts:
    """The words of an evaluation: tokens, or with ``--remove-bpe`` what they are pieces of."""

    # Numbers of the tokens that the next one belongs to
    continued: Tensor = field(default_factory=lambda: torch.tensor([], dtype=torch.long))
    has_start: bool = False  # with a token that is not counted
    words: int = 0
    impossible: int = 0  # of them, those of probability zero
    nats: float = 0.0  # minus the sum of the natural logarithms of the others' probabilities

    def add(self, tokens: Tensor, scores: Tensor) -> None:
        """Count the tokens of a sample, with the natural logarithms of their probabilities."""
        start = int(self.has_start)
        is_end = ~torch.isin(tokens[start:], self.continued.to(tokens))
        is_end[-1:] = True  # of the sample, whatever would come
        word_of_token = is_end.cumsum(0) - is_end.long()
        words = int(is_end.sum())
        logs = scores.new_zeros(words, dtype=torch.float64)
        logs.index_add_(0, word_of_token, scores[start:].double())
        is_impossible = logs == -math.inf
        self.words += words
        self.impossible += int(is_impossible.sum())
        self.nats -= float(logs[~is_impossible].sum())

    def perplexity_of_others(self) -> float:
        """The perplexity of the words that are not impossible; NaN where there are none."""
        possible = self.words - self.impossible
        return math.exp(self.nats / possible) if possible else math.nan


def evaluate_with_zeros(eval_lm: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fairseq's ``eval_lm``, whose loss is infinite where a word has probability zero.

    Logs how many words have, and the perplexity of the others. Where none has, everything is as
    fairseq gives it.
    """
    given = inspect.signature(eval_lm).bind(*args, **kwargs).arguments
    marker = given.get("post_process")
    counts = WordCounts(has_start=bool(given.get("remove_bos_token")))
    if marker is not None:
        words, mark = given["source_dictionary"], marker.rstrip()
        pieces = [number for number in range(len(words)) if words[number].endswith(mark)]
        counts.continued = torch.tensor(pieces, dtype=torch.long)
    with _counting_scorers(eval_lm.__globals__, counts), _zeros_in_messages(counts):
        results = eval_lm(*args, **kwargs)
    if not counts.impossible:
        return results
    share = 100 * counts.impossible / counts.words
    name = "tokens" if marker is None else "words"
    logger.warning(
        f"{counts.impossible:,} of {counts.words:,} {name} ({share:.1f} %) have probability 0, so "
        f"the perplexity is infinite; that of the others is {counts.perplexity_of_others():.2f}"
    )
    return {**results, "loss": math.inf, "perplexity": math.inf}


@contextmanager
def _counting_scorers(namespace: dict[str, Any], counts: WordCounts) -> Iterator[None]:
    """Have scorers that fairseq makes in the block count, and give NaN for -inf.

    NaN goes through its sums as -inf does, and is not what its broken message is for.
    """
    make = namespace["SequenceScorer"]

    def counting(*args: Any, **kwargs: Any) -> Any:
        scorer = make(*args, **kwargs)
        generate = scorer.generate

        def generate_and_count(models: Any, sample: Any, **options: Any) -> Any:
            hypotheses = generate(models, sample, **options)
            for hypothesis, *_ in hypotheses:
                scores = hypothesis["positional_scores"]
                counts.add(hypothesis["tokens"], scores)
                is_impossible = scores == -math.inf
                hypothesis["positional_scores"] = scores.masked_fill(is_impossible, math.nan)
            return hypotheses

        scorer.generate = generate_and_count
        return scorer

    namespace["SequenceScorer"] = counting
    try:
        yield
    finally:
        namespace["SequenceScorer"] = make


@contextmanager
def _zeros_in_messages(counts: WordCounts) -> Iterator[None]:
    """Have what fairseq logs in the block say -inf, where a word is impossible."""

    def mend(record: logging.LogRecord) -> bool:
        message: Any = record.msg
        if not counts.impossible:
            return True
        if isinstance(message, str):
            record.msg = _NO_NUMBER.sub("[-inf]", message)
        for name in ("log_prob", "next_word_prob"):  # of --output-word-stats
            if math.isnan(float(getattr(message, name, 0.0))):
                setattr(message, name, -math.inf)
        return True

    log = logging.getLogger(EVALUATION)
    log.addFilter(mend)
    try:
        yield
    finally:
        log.removeFilter(mend)
