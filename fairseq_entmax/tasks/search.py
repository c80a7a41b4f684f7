"""Beam search for summaries: fairseq's search with the penalties of OpenNMT-py.

fairseq's loop does not change. The additions act where it asks the models for the next word
(:class:`CoverageEnsemble`), where it blocks repeated n-grams (:class:`RepeatedNgrams`), and
after it has ended (:class:`SummarySearch`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.sequence_generator import (
    EnsembleModelWithAlignment,
    SequenceGenerator,
    SequenceGeneratorWithAlignment,
)
from torch import Tensor, nn

AVERAGE, WU = "average", "wu"
LENGTH_PENALTIES = (AVERAGE, WU)
# Its key in the incremental state of the first model, which is reordered with the hypotheses
_COVERAGE = "entmax_coverage"


@dataclass(frozen=True)
class SearchSettings:
    """What the search adds to fairseq's; the defaults add nothing."""

    length_penalty: str = AVERAGE
    coverage_penalty: float = 0.0  # beta of coverage_penalty()
    may_repeat: tuple[int, ...] = ()  # words whose n-grams may repeat, in ascending order


def wu_penalty(length: int, alpha: float) -> float:
    """The divisor of a hypothesis's log probability: ``((5 + length) / 6) ** alpha``.

    The length counts its words and the end of the sentence.

    Source: Wu et al. 2016, *Google's Neural Machine Translation System*, equation 14.
    """
    return float(((5 + length) / 6) ** alpha)


def coverage_penalty(coverage: Tensor) -> Tensor:
    """The attention beyond 1 that source words got in all: ``sum_i max(coverage_i, 1) - 1``.

    Padding gets no attention and adds nothing. ``coverage`` is the attention summed over the
    steps, ``(..., source)``.

    Source: Gehrmann, Deng, Rush 2018, *Bottom-Up Abstractive Summarization*, section 5.
    """
    return (coverage - 1).clamp(min=0).sum(dim=-1)


class CoverageEnsemble(EnsembleModelWithAlignment):
    """Models whose log probabilities of the next word are lowered by the coverage penalty.

    Each step lowers those of all words by ``beta`` times the growth of the penalty. So a
    hypothesis's cumulative score is its log probability minus ``beta`` times its penalty so far.
    The attention is the mean over the models of what their decoders return.
    """

    def __init__(self, models: Sequence[nn.Module], beta: float) -> None:
        super().__init__(models)
        self.beta = beta

    def forward_decoder(
        self,
        tokens: Tensor,
        encoder_outs: list[dict[str, list[Tensor]]],
        incremental_states: list[dict[str, Any]],
        temperature: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """Lowered log probabilities of the next word, ``(hypotheses, words)``, and attention."""
        lprobs, attention = super().forward_decoder(
            tokens, encoder_outs, incremental_states, temperature
        )
        assert attention is not None
        state = incremental_states[0]
        # In float32 at least: sums in half precision would lose steps of a long summary
        attention_now = attention.to(torch.promote_types(attention.dtype, torch.float32))
        before = state.get(_COVERAGE)
        before = torch.zeros_like(attention_now) if before is None else before
        after = before + attention_now
        state[_COVERAGE] = after
        growth = self.beta * (coverage_penalty(after) - coverage_penalty(before))
        return lprobs.sub_(growth[:, None].to(lprobs.dtype)), attention

    def reorder_incremental_state(
        self, incremental_states: list[dict[str, Any]], new_order: Tensor
    ) -> None:
        """Select the states of hypotheses, coverage included."""
        super().reorder_incremental_state(incremental_states, new_order)
        state = incremental_states[0]
        if _COVERAGE in state:
            state[_COVERAGE] = state[_COVERAGE].index_select(0, new_order)


class RepeatedNgrams(nn.Module):
    """Forbids a hypothesis to repeat one of its n-grams; replaces fairseq's blocker.

    fairseq's looks at the padding after a hypothesis, not at its last words, and blocks nothing
    unless its CUDA extension was built.

    A word that a prefix forces, or that is the only possible one, stays: without it the
    hypothesis could not go on. N-grams with one of the words ``may_repeat`` may repeat.

    Source: Paulus, Xiong, Socher 2018, *A Deep Reinforced Model for Abstractive Summarization*,
    section 2.5; the exceptions are those of OpenNMT-py's ``ignore_when_blocking``.
    """

    def __init__(self, size: int, may_repeat: Sequence[int] = ()) -> None:
        super().__init__()
        self.size = size
        self.may_repeat = tuple(may_repeat)

    def forward(
        self, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int
    ) -> Tensor:
        """Set the log probabilities of words that would end a repeated n-gram to -inf, in place.

        ``tokens``: a start symbol, ``step`` words and padding; ``lprobs``: ``(hypotheses, words)``.
        """
        if step < self.size:
            return lprobs
        words = tokens[:, 1 : step + 1]
        ngrams = words.unfold(1, self.size, 1)
        last_words = words[:, step - self.size + 1 :]
        repeats = (ngrams[..., :-1] == last_words[:, None]).all(dim=-1)
        exempt = torch.tensor(self.may_repeat, dtype=words.dtype, device=words.device)
        repeats &= ~torch.isin(ngrams, exempt).any(dim=-1)
        rows, places = repeats.nonzero(as_tuple=True)
        ends = ngrams[rows, places, -1]
        saved = lprobs[rows, ends]
        lprobs[rows, ends] = -math.inf
        is_dead = lprobs.amax(dim=-1)[rows] == -math.inf
        lprobs[rows[is_dead], ends[is_dead]] = saved[is_dead]
        return lprobs


class _Search:
    """Mixin with the part of :class:`SummarySearch` that suits any of fairseq's generators."""

    model: Any
    repeat_ngram_blocker: Any
    len_penalty: float

    def __init__(
        self, models: Any, tgt_dict: Any, *, settings: SearchSettings, **options: Any
    ) -> None:
        super().__init__(models, tgt_dict, **options)  # type: ignore[call-arg]
        self.settings = settings
        if settings.coverage_penalty:
            self.model = CoverageEnsemble(self.model.models, settings.coverage_penalty)
        if self.repeat_ngram_blocker is not None:
            size = self.repeat_ngram_blocker.no_repeat_ngram_size
            self.repeat_ngram_blocker = RepeatedNgrams(size, settings.may_repeat)
        if settings.length_penalty == WU:
            self.normalize_scores = False

    def generate(self, *args: Any, **kwargs: Any) -> list[list[dict[str, Any]]]:
        """Hypotheses of each sentence of a batch, best first; arguments are fairseq's."""
        sentences = super().generate(*args, **kwargs)  # type: ignore[misc]
        if self.settings.length_penalty == WU:
            # Only here are hypotheses of different lengths compared: fairseq's loop keeps the
            # first that end
            for hypotheses in sentences:
                for hypothesis in hypotheses:
                    length = len(hypothesis["tokens"])
                    hypothesis["score"] = hypothesis["score"] / wu_penalty(length, self.len_penalty)
                hypotheses.sort(key=lambda hypothesis: -hypothesis["score"].item())
        return sentences


class SummarySearch(_Search, SequenceGenerator):
    """fairseq's search for the best hypotheses, with ``settings``; scores include the penalties."""


class SummarySearchWithAlignment(_Search, SequenceGeneratorWithAlignment):
    """The same for ``--print-alignment``."""
