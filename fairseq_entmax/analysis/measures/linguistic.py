"""How heads relate to the parses of ``--conllu``; null without parses, and in decoder-self.

Dependencies follow Voita et al. 2019, *Analyzing Multi-Head Self-Attention*, section 5.2. Parts of
speech and named entities follow Baan et al. 2019, *Understanding Multi-Head Attention in
Abstractive Summarization*, sections 5.1 and 5.2. What the papers leave open is decided here:

- Attention from word to word (encoder-self) is the mean over the query's subwords of the sum over
  the key's subwords (Clark et al. 2019, *What Does BERT Look At?*, section 4.1). The end of the
  sentence is not a word. A head looks at the word with the largest weight, the leftmost of
  several, which may be the query itself. A query with no weight on any word looks at none.
- Accuracy: each arc of a relation counts in both directions. ``to_head`` has the dependent as
  query, and is right if it looks at its head. ``to_dependent`` has the head as query, and is
  right if it looks at this dependent. In Voita et al., table 1, both directions of a relation
  have the same baseline, as they have if arcs are counted. A word with two dependents of one
  relation can therefore be right only once in two cases, for a head as for the baseline.
- Parts of speech: computed over the source's tokens (subwords), so that uniform attention gives 0.
  For each sentence, KL(attention || sentence), in nats, compares the tags weighted by the attention
  on them, summed over queries and normalised, with the tags of the sentence. In this direction it
  is finite, since attention is only on tags of the sentence. The result is the mean over
  sentences; a sentence without attention on any tagged word is left out. The shares of tags in a
  head's attention are means over the same sentences.
- Named entities: for each sentence, the attention on tokens of named entities divided by the
  attention on tokens of words. The result is the mean over sentences, as above.

For the last two, the queries are all tokens except padding, with ends of sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fairseq_entmax.analysis.measures.base import (
    Fields,
    JsonSchema,
    Number,
    WeightMeasure,
    object_schema,
)
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums
from fairseq_entmax.attentions import DECODER_SELF, ENCODER_SELF

if TYPE_CHECKING:
    from torch import Tensor

    from fairseq_entmax.analysis.data.annotations.annotated import AnnotatedBatch

TO_HEAD, TO_DEPENDENT = "to_head", "to_dependent"
_LOOKS = "how often a word's largest weight is on the word that"
_DIRECTIONS = {
    TO_HEAD: ("Dependencies: to the head", f"{_LOOKS} it depends on by the relation"),
    TO_DEPENDENT: ("Dependencies: to the dependent", f"{_LOOKS} depends on it by the relation"),
}


class Dependencies(WeightMeasure):
    """How often a word's largest weight, not counting the end of the sentence, is on the other word
    of a dependency, for each relation; in encoder-self with annotations."""

    name = "dependencies"
    source = "Voita et al. 2019, section 5.2"
    is_optional = False

    def fields(self) -> dict[str, JsonSchema]:
        both = {key: {"$ref": "#/$defs/share_or_null"} for key in _DIRECTIONS}
        shape = {"type": ["object", "null"], "description": self.about()}
        return {self.name: {**shape, "additionalProperties": object_schema("", both)}}

    def shown(self, analysis: dict[str, Any]) -> Iterator[Number]:
        """Yield numbers such as ``to-head@nsubj`` and ``to-dependent@obj``."""
        relations = (analysis["annotations"] or {}).get("relations") or {}
        for direction, (group, meaning) in _DIRECTIONS.items():
            for relation in relations:
                yield Number(
                    f"{direction.replace('_', '-')}@{relation}",
                    f"{relation} {direction.replace('_', ' ')}",
                    f"{meaning} {relation}",
                    (self.name, relation, direction),
                    group=group,
                )

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        batch = weights.batch.annotated
        if batch is None or not batch.relations or weights.attention != ENCODER_SELF:
            return
        largest, looked_at = _between_words(weights.float64, batch).max(dim=-1)
        looked_at = looked_at.masked_fill(largest <= 0, -1)  # (batch, heads, words)
        sums.labels["arcs"] = batch.relations
        size, words = len(batch.relations), (batch.arc_dependent, batch.arc_head)
        for direction, (query, key) in ((TO_HEAD, words), (TO_DEPENDENT, words[::-1])):
            right = looked_at[batch.arc_sentence, :, query] == key.unsqueeze(1)  # (arcs, heads)
            hits = weights.float64.new_zeros(size, weights.float64.size(1))
            sums.add(direction, hits.index_add_(0, batch.arc_relation, right.double()).t())
        sums.add("arcs", batch.arc_relation.bincount(minlength=size))

    def result(self, sums: Sums, head: int) -> Fields:
        counts = zip(sums.labels["arcs"], sums["arcs"].tolist(), strict=True)
        hits = {direction: sums[direction][head].tolist() for direction in _DIRECTIONS}
        accuracies = {
            name: {direction: right[number] / count for direction, right in hits.items()}
            for number, (name, count) in enumerate(counts)
            if count
        }
        return {self.name: accuracies or None}


class PartsOfSpeech(WeightMeasure):
    """The divergence of the tags that a head looks at from the tags of the sentence."""

    name, title = "pos_kl", "Part-of-speech divergence"
    meaning = (
        "Kullback-Leibler divergence, in nats, of the parts of speech weighted by attention from "
        "those of the sentence"
    )
    source = "Baan et al. 2019, section 5.1"
    largest = None
    is_optional = False

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        batch = weights.batch.annotated
        if batch is None or not batch.parts_of_speech.size(2) or weights.attention == DECODER_SELF:
            return
        weighted = weights.on_tags
        total = weighted.sum(dim=-1)
        sentence = batch.parts_of_speech.sum(dim=1, keepdim=True)
        sentence = sentence / sentence.sum(dim=-1, keepdim=True)
        share = weighted / total.unsqueeze(-1)
        # If either is 0, so is the share, which adds nothing
        ratio = (share / sentence).masked_fill(~(share > 0), 1.0)
        divergence = (share * ratio.log()).sum(dim=-1).clamp(min=0.0)
        counted = total > 0
        sums.add_ratios(self.name, divergence.masked_fill(~counted, 0.0), counted.double())


class PartOfSpeechShares(WeightMeasure):
    """The parts of speech that a head looks at: each tag's share of its attention on tagged words,
    averaged over sentences. The tags are those of ``part_of_speech`` in ``annotations``."""

    name = "pos_shares"
    source = "Baan et al. 2019, figures 2 and 5"
    is_optional = False

    def fields(self) -> dict[str, JsonSchema]:
        shape = {"type": ["object", "null"], "description": self.about()}
        return {self.name: {**shape, "additionalProperties": {"$ref": "#/$defs/share_or_null"}}}

    def shown(self, analysis: dict[str, Any]) -> Iterator[Number]:
        """Yield numbers such as ``pos@NOUN``."""
        for tag in (analysis["annotations"] or {}).get("part_of_speech") or {}:
            yield Number(
                f"pos@{tag}",
                f"Weight on {tag}",
                f"share of the weight on tagged words that is on those tagged {tag}",
                (self.name, tag),
                group="Weight on a part of speech",
            )

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        batch = weights.batch.annotated
        if batch is None or not batch.parts_of_speech.size(2) or weights.attention == DECODER_SELF:
            return
        sums.labels["tags"] = batch.tags
        sums.add_ratios("tags", weights.on_tags, weights.on_tags.sum(dim=-1))

    def result(self, sums: Sums, head: int) -> Fields:
        count = float(sums["tags/count"][head])
        shares = sums["tags"][head].tolist()
        named = zip(sums.labels["tags"], shares, strict=True)
        return {self.name: {tag: share / count for tag, share in named} if count else None}


class NamedEntity(WeightMeasure):
    """The weight on named entities divided by the weight on words."""

    name, title = "named_entity", "Named entities"
    meaning = "share of the weight on words that is on named entities"
    source = "Baan et al. 2019, section 5.2"
    is_optional = False

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        batch = weights.batch.annotated
        if batch is None or not batch.has_entities or weights.attention == DECODER_SELF:
            return
        received = weights.received
        on_words = received.masked_fill((batch.word < 0).unsqueeze(1), 0.0).sum(dim=-1)
        on_entities = (received * batch.entities.unsqueeze(1)).sum(dim=-1)
        sums.add_ratios(self.name, on_entities, on_words)


def _between_words(weights: Tensor, batch: AnnotatedBatch) -> Tensor:
    """Attention between words, ``(batch, heads, words, words)``, times the query's subword count.

    In float64, sums are exact unless the numbers differ by a factor of more than 2**25, so the
    order of addition does not decide between words of equal weight."""
    size, heads, length, _ = weights.shape
    # Tokens of no word are gathered in an extra entry after the words, which is cut off
    word = batch.word.masked_fill(batch.word < 0, batch.words)
    keys = word[:, None, None].expand(-1, heads, length, -1)
    to_words = weights.new_zeros(size, heads, length, batch.words + 1)
    to_words.scatter_add_(3, keys, weights)
    queries = word[:, None, :, None].expand(-1, heads, -1, batch.words + 1)
    between = weights.new_zeros(size, heads, batch.words + 1, batch.words + 1)
    return between.scatter_add_(2, queries, to_words)[:, :, :-1, :-1]
