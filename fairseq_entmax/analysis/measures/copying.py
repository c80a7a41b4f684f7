"""Whether a head of cross-attention looks at the source word that the decoder is writing.

Words here are the model's tokens, mostly subwords. A target token is in the source if the source's
dictionary has the same symbol and the source sentence contains it. Special symbols, such as
``<unk>``, are not words. The words that are written are those of the text that the decoder is
given: the reference, or what the model generated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fairseq_entmax.analysis.measures.base import Number, WeightMeasure
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums
from fairseq_entmax.attentions import CROSS, ENCODER_SELF


class CopyAgreement(WeightMeasure):
    """Whether the head looks at the word that is being written, over the steps whose word is in the
    source. Only in cross; null if no word of the target is in the source."""

    name = "copy_agreement"
    source = "after Baan et al. 2019, section 5.3"
    numbers = (
        Number(
            "copy-agreement",
            "Copy agreement",
            "how often the largest weight is on the word being written, over steps whose word is in the source",
            ("copy_agreement", "largest"),
        ),
        Number(
            "copy-support",
            "Copy agreement, any weight",
            "how often the word being written has a weight above zero",
            ("copy_agreement", "support"),
        ),
        Number(
            "copy-weight",
            "Copy agreement, weight",
            "mean weight on the word being written, summed over its positions",
            ("copy_agreement", "weight"),
        ),
        Number(
            "copy-chance",
            "Copy agreement by chance",
            "agreement of a head that looks at random keys, the same for each head of the layer",
            ("copy_chance",),
            of_layer=True,
        ),
    )

    def shown(self, analysis: dict[str, Any]) -> Iterator[Number]:
        """Yield all numbers; tables of heads have the first one if a model copies."""
        copies = any("copying" in model for model in analysis["models"])
        for place, number in enumerate(self.numbers):
            is_main = copies and place == 0
            yield replace(number, is_main=is_main, in_summary=is_main)

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        places = weights.batch.places_of_words
        if places is None or weights.attention != CROSS:
            return
        is_place = places["now"]
        count = is_place.sum(dim=2)
        counted = count > 0
        largest = is_place[:, None].expand_as(weights.weights)
        sums.add_mean("largest", largest.gather(3, weights.maximum[..., None])[..., 0], counted)
        on_word = (weights.weights * is_place[:, None]).sum(dim=3)
        sums.add_mean("support", on_word > 0, counted)
        sums.add_mean("weight", on_word, counted)
        sums.add("copy_chance", (count / weights.attendable).sum())
        sums.add("copy_chance/count", counted.sum())


class RelativePosition(WeightMeasure):
    """The share of queries whose largest weight is on a neighbour: in encoder-self, the token
    before or after the query; in cross, a source token that is the last word written, the one being
    written or the next one. null in decoder-self."""

    name, title = "relative_position", "Relative position"
    meaning = (
        "share of the queries whose largest weight is on the token before or after, and in cross "
        "on the previous, current or next word written"
    )
    source = "Baan et al. 2019, section 5.3"

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        if weights.attention == ENCODER_SELF:
            is_near = weights.offset.abs() == 1
        elif weights.attention == CROSS and weights.batch.places_of_words is not None:
            last, now, following = weights.batch.places_of_words.values()
            around = (last | now | following)[:, None].expand_as(weights.weights)
            is_near = around.gather(3, weights.maximum[..., None])[..., 0]
        else:
            return
        sums.add_mean(self.name, is_near, weights.queries.real)
