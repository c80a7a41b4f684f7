"""Where the words of one text, or of two, are among the symbols of a source.

The task ``sentence_prediction`` makes a source of ``[init] words eos``, or of a pair as ``[init]
words eos [separator] words eos``, with padding behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class SourceSymbols:
    """The symbols of a source that are no words.

    Attributes:
        special: all of them but padding: the ends of sentences, and what the task adds.
        padding: what fills up shorter sources.
        boundary: the first of it ends the first text of a pair.
        initial: what every source begins with; None for nothing.
    """

    special: tuple[int, ...]
    padding: int
    boundary: int
    initial: int | None = None

    @classmethod
    def of(cls, task: Any) -> SourceSymbols:
        """Those of a task of fairseq's, which may have ``--init-token`` and ``--separator-token``."""
        dictionary, cfg = task.source_dictionary, getattr(task, "cfg", None)
        initial = getattr(cfg, "init_token", None)
        separator = getattr(cfg, "separator_token", None)
        special = {dictionary.bos(), dictionary.eos(), initial, separator} - {None}
        boundary = dictionary.eos() if separator is None else separator
        return cls(tuple(sorted(special)), dictionary.pad(), boundary, initial)

    def text(self, tokens: Tensor) -> Tensor:
        """Where sources ``(batch, tokens)`` are no padding."""
        return tokens != self.padding

    def texts(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Where the first text of each pair of ``(batch, tokens)`` is, with its boundary, and the second.

        Padding is in neither.
        """
        ends = tokens == self.boundary
        if self.initial == self.boundary:
            ends[:, 0] = False
        is_first = ends.cumsum(1) - ends.long() == 0
        is_token = self.text(tokens)
        second = ~is_first & is_token
        alone = ~second.any(1)
        if alone.any():  # the one look at values, for which a GPU is waited for
            raise ValueError(
                f"--pair-attention: source {int(alone.nonzero()[0])} of a batch has nothing behind "
                f"its first separator, which is symbol {self.boundary}: each needs two texts, so "
                f"give the task an input1 beside input0, and --max-positions that leave room for "
                f"both"
            )
        return is_first & is_token, second

    def keys(self, tokens: Tensor, text: Tensor) -> Tensor:
        """Of a text, the tokens that may be attended to: its words; where it has none, all of it."""
        words = text
        for symbol in self.special:
            words = words & (tokens != symbol)
        return words | (text & ~words.any(1, keepdim=True))
