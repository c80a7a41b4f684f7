"""Whether heads look at source words that stand out: rare words, and the final punctuation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from fairseq_entmax.analysis.measures.base import Number, WeightMeasure
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums
from fairseq_entmax.attentions import DECODER_SELF, ENCODER_SELF

if TYPE_CHECKING:
    from torch import Tensor

RARE_RANK = 500


class RareWord(WeightMeasure):
    """How often the largest weight is on the rarest source token, or on one of the two rarest, in
    rare_word_sentences; null in decoder-self."""

    name = "rare_word"
    source = "Voita et al. 2019, section 5.3"
    settings: ClassVar = {"rare_rank": RARE_RANK}
    numbers = (
        Number(
            "rare-word",
            "Rarest word",
            "how often the largest weight is on the rarest source token of the sentence",
            ("rare_word", "rarest"),
        ),
        Number(
            "two-rarest-words",
            "Two rarest words",
            "how often the largest weight is on one of the two rarest source tokens",
            ("rare_word", "two_rarest"),
        ),
    )

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        from fairseq_entmax.analysis.data.tokens import rarest

        if weights.attention == DECODER_SELF:
            return
        ranks = weights.batch.table.rank[weights.keys.tokens]
        first, second = rarest(ranks)
        counted = weights.queries.real & (first >= RARE_RANK)
        of_heads = ranks[:, None].expand(-1, weights.maximum.size(1), -1)
        looked_at = of_heads.gather(2, weights.maximum)
        for name, least in (("rarest", first), ("two_rarest", second)):
            sums.add_mean(name, looked_at >= least[:, None], counted)


class FinalPunctuation(WeightMeasure):
    """Mean weight on the source's final question mark or full stop; in encoder-self, from all
    tokens except the mark and the end of the sentence. null in decoder-self."""

    name = "final_punctuation"
    numbers: tuple[Number, ...] = (
        Number(
            "question-mark",
            "Question mark",
            "mean weight on the question mark at the end of a question",
            ("final_punctuation", "interrogative"),
        ),
        Number(
            "full-stop",
            "Full stop",
            "mean weight on the full stop at the end of a statement",
            ("final_punctuation", "declarative"),
        ),
    )

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        self._add(weights, sums, weights.queries.real)

    def _add(self, weights: LayerWeights, sums: Sums, counted: Tensor) -> None:
        """Add the queries that are ``counted``, ``(batch, queries)``."""
        import torch

        from fairseq_entmax.analysis.data import tokens

        table, keys, rows = weights.batch.table, weights.keys, weights.weights
        if weights.attention == DECODER_SELF:
            return
        place, ending = tokens.final_punctuation(table, keys.tokens, ~keys.real | keys.end)
        index = place[:, None, None, None].expand(-1, rows.size(1), rows.size(2), 1)
        on_mark = rows.gather(3, index).squeeze(3)
        if weights.attention == ENCODER_SELF:
            # The queries of the mark and of the end of the sentence are not words
            positions = torch.arange(rows.size(2), device=rows.device)
            counted = counted & ~weights.queries.end & (positions != place[:, None])
        kinds = {"interrogative": tokens.INTERROGATIVE, "declarative": tokens.DECLARATIVE}
        for name, kind in kinds.items():
            sums.add_mean(name, on_mark, counted & (ending == kind)[:, None])


class QuestionWord(FinalPunctuation):
    """Mean weight from interrogative words on the final question mark or full stop, in
    encoder-self. These are the words with PronType=Int in the parses, or, without such parses,
    those in a list for the source's language; null without a list."""

    name = "question_word"
    source = "Correia et al. 2019, figure 9"
    numbers = tuple(
        replace(
            one,
            name=f"{one.name}-from-question-words",
            title=f"{one.title}, from question words",
            meaning=f"{one.meaning}, from question words",
            place=("question_word", one.place[1]),
        )
        for one in FinalPunctuation.numbers
    )

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        asking = weights.batch.interrogative
        if asking is not None and weights.attention == ENCODER_SELF:
            self._add(weights, sums, weights.queries.real & asking)
