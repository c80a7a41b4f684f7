"""What heads have to do with syntax, parts of speech and named entities.

Dependencies follow Voita et al. 2019, *Analyzing Multi-Head Self-Attention*, section 5.2; parts
of speech and named entities Baan et al. 2019, *Understanding Multi-Head Attention in Abstractive
Summarization*, sections 5.1 and 5.2. What the papers leave open is decided here:

- Attention from word to word (encoder-self) is that from the query's subwords, their mean, to
  the key's subwords, their sum (Clark et al. 2019, *What Does BERT Look At?*, section 4.1). The
  end of the sentence is no word. A head looks at the word with the largest weight, the leftmost
  of several; the word itself counts as one. A query with no weight on any word looks at none.
- Accuracy: each arc of a relation is a case in both directions: ``to_head`` has the dependent
  as query and is right if that looks at its head; ``to_dependent`` has the head as query and is
  right if that looks at this dependent. In Voita et al., table 1, the two directions of a
  relation share their baseline, as they do when arcs are counted. A word with two dependents of
  one relation can so be right once in two cases, for a head as for the baseline.
- Baseline: the share of a relation's arcs at its most frequent offset, in words of the text,
  from query to key. Of offsets that are as frequent the shorter counts, then the one to the left.
- Parts of speech: over the source's tokens, that is subwords, so that uniform attention has 0.
  For each sentence, KL(attention || sentence) in nats between the tags weighted by the
  attention on them, summed over the queries and normalised, and the tags of the sentence. This
  way round it is finite, since attention is on tags of the sentence only. The mean over
  sentences is taken; a sentence without attention on any tagged word is left out.
- Named entities: for each sentence, the attention on tokens of named entities by that on tokens
  of words; beside it stands the share of those tokens. Means over sentences, as above.

For the last two the queries are all tokens that are not padding, ends of sentences included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping as Dictionary
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis.annotations.annotated import AnnotatedBatch, Annotations
from fairseq_entmax.analysis.batch import Batch
from fairseq_entmax.attentions import CROSS, ENCODER_SELF

ByAttention = Dictionary[str, Dictionary[int, Tensor]]
TO_HEAD, TO_DEPENDENT = "to_head", "to_dependent"


class AnnotationCounts:
    """Counts of the annotations of a data set, a batch at a time, and the positional baselines.

    Args:
        annotations: where the batches come from.
    """

    def __init__(self, annotations: Annotations) -> None:
        self._annotations = annotations
        self._sentences = 0
        # For each relation: how often the head stands at an offset from the dependent
        self._offsets: list[Counter[int]] = [Counter() for _ in annotations.relations]
        self._tags = _Mean()
        self._entities = _Mean()

    def update(self, batch: AnnotatedBatch) -> None:
        """Add one batch."""
        self._sentences += batch.word.size(0)
        offsets = (batch.arc_head - batch.arc_dependent).tolist()
        for relation, offset in zip(batch.arc_relation.tolist(), offsets, strict=True):
            self._offsets[relation][offset] += 1
        tags = batch.parts_of_speech.sum(dim=1)
        self._tags.add(tags, tags.sum(dim=1))
        self._entities.add(batch.entities.sum(dim=1), (batch.word >= 0).double().sum(dim=1))

    def results(self) -> dict[str, Any]:
        """The numbers of ``annotations`` in ``analysis.json``.

        Returns:
            ``file`` and ``sentences``; ``relations``: name to ``count`` of arcs and, for
            ``to_head`` and ``to_dependent``, ``baseline`` in [0, 1] and its ``offset``;
            ``part_of_speech``: tag to its share of the tokens; ``named_entities``: their share
            of the tokens. The last three are None where the file has no such annotation.
        """
        tags = self._tags.value()
        names = self._annotations.parts_of_speech
        relations = zip(self._annotations.relations, self._offsets, strict=True)
        return {
            "file": self._annotations.path,
            "sentences": self._sentences,
            "relations": {name: _baselines(found) for name, found in relations if found} or None,
            "part_of_speech": tags and dict(zip(names, tags, strict=True)),
            "named_entities": self._entities.value() if self._annotations.has_entities else None,
        }


class _Mean:
    """A mean over sentences of ratios; a sentence where the divisor is 0 does not count."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._count: Tensor | None = None

    def add(self, values: Tensor, divisor: Tensor) -> None:
        """Add values ``(batch, …, n)`` or ``(batch, …)`` by their divisors ``(batch, …)``."""
        counts = divisor > 0
        safe = divisor.masked_fill(~counts, 1.0)
        while safe.dim() < values.dim():
            safe = safe.unsqueeze(-1)
        total = (values / safe).sum(dim=0)
        self._sum = total if self._sum is None else self._sum + total
        self._count = counts.sum(dim=0) + (0 if self._count is None else self._count)

    def value(self, index: tuple[int, ...] = ()) -> Any:
        """The mean at an index of ``…``: a number, or a list of ``n``; None if nothing counts."""
        if self._sum is None or self._count is None or not self._count[index]:
            return None
        return (self._sum[index] / self._count[index]).tolist()


def _between_words(weights: Tensor, batch: AnnotatedBatch) -> Tensor:
    """Attention between words, ``(batch, heads, words, words)``, times the query's subwords.

    Among the keys of one query that factor changes nothing. Sums of float32 numbers in float64
    are exact unless the numbers differ by more than 2**25, so that the order of adding does not
    decide between words of equal weight.

    Args:
        weights: ``(batch, heads, subwords, subwords)`` float64.
    """
    size, heads, length, _ = weights.shape
    # What is part of no word is gathered behind the words, and cut off
    word = torch.where(batch.word < 0, batch.words, batch.word)
    keys = word[:, None, None].expand(-1, heads, length, -1)
    to_words = weights.new_zeros(size, heads, length, batch.words + 1)
    to_words.scatter_add_(3, keys, weights)
    queries = word[:, None, :, None].expand(-1, heads, -1, batch.words + 1)
    between = weights.new_zeros(size, heads, batch.words + 1, batch.words + 1)
    return between.scatter_add_(2, queries, to_words)[:, :, :-1, :-1]


def _baselines(offsets: Counter[int]) -> dict[str, Any]:
    """A relation's numbers from how often its heads stand at each offset from the dependent."""
    count = offsets.total()
    result: dict[str, Any] = {"count": count}
    for direction, sign in ((TO_HEAD, 1), (TO_DEPENDENT, -1)):
        offset = min(offsets, key=lambda place: (-offsets[place], abs(place), sign * place))
        result[direction] = {"baseline": offsets[offset] / count, "offset": sign * offset}
    return result


class LinguisticStatistics:
    """What the heads of one model do with the annotations, a batch at a time.

    Args:
        annotations: where the batches come from.
    """

    def __init__(self, annotations: Annotations) -> None:
        self._annotations = annotations
        self._layers: dict[tuple[str, int], _LayerSums] = {}

    def update(
        self,
        attention: str,
        layer: int,
        weights: Tensor,
        batch: AnnotatedBatch,
        queries: Tensor,
    ) -> None:
        """Add the weights of one attention of one layer.

        Args:
            attention: ``encoder-self`` or ``cross``.
            layer: from 0.
            weights: ``(batch, heads, queries, keys)``, with the source as keys, 0 at padding.
            batch: the annotations of these sentences.
            queries: ``(batch, queries)`` bool: those that are not padding.

        Raises:
            ValueError: the attention's keys are not the source.
        """
        if attention not in (ENCODER_SELF, CROSS):
            raise ValueError(
                f"{attention} does not look at the source, which alone is annotated: "
                f"{ENCODER_SELF} and {CROSS} do"
            )
        heads = weights.size(1)
        if heads == 0:
            return
        sums = self._layers.setdefault((attention, layer), _LayerSums(heads))
        weights = weights.double()
        mass = (queries.double()[:, None, None, :] @ weights).squeeze(2)  # (batch, heads, keys)
        if self._annotations.parts_of_speech:
            sums.add_parts_of_speech(mass, batch)
        if self._annotations.has_entities:
            sums.add_entities(mass, batch)
        if attention == ENCODER_SELF and self._annotations.relations:
            sums.add_dependencies(weights, batch, len(self._annotations.relations))

    def update_all(self, attention: ByAttention, batch: AnnotatedBatch, text: Batch) -> None:
        """Add the weights of every attention that looks at the source, those of a recorder."""
        for name in (ENCODER_SELF, CROSS):
            real = text.sides(name)[0].real
            for layer, weights in attention.get(name, {}).items():
                self.update(name, layer, weights, batch, real)

    def results(self, attention: str, layer: int) -> list[dict[str, Any]]:
        """The numbers of each head of a layer, as ``analysis.json`` has them.

        Returns:
            For each head ``dependencies``: relation to the accuracies ``to_head`` and
            ``to_dependent`` in [0, 1], for the relations that the data has; ``pos_kl``, in nats;
            ``named_entity`` in [0, 1]. Each is None where the file has no such annotation or
            nothing was counted. An empty list for an attention that was never added.
        """
        sums = self._layers.get((attention, layer))
        if sums is None:
            return []
        return [sums.head(head, self._annotations.relations) for head in range(sums.heads)]


class _LayerSums:
    """Sums over the batches for the heads of one attention of one layer."""

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self._divergence = _Mean()
        self._entities = _Mean()
        self._hits: dict[str, Tensor] = {}  # direction to (relations, heads)
        self._arcs: Tensor | None = None  # (relations,)

    def add_parts_of_speech(self, mass: Tensor, batch: AnnotatedBatch) -> None:
        """Add the attention ``(batch, heads, keys)`` that a sentence's tokens have got."""
        weighted = mass @ batch.parts_of_speech  # (batch, heads, tags)
        total = weighted.sum(dim=-1)
        sentence = batch.parts_of_speech.sum(dim=1, keepdim=True)
        sentence = sentence / sentence.sum(dim=-1, keepdim=True)
        share = weighted / total.unsqueeze(-1)
        # Where either is 0 so is the first, which adds nothing
        ratio = torch.where(share > 0, share / sentence, 1.0)
        divergence = (share * ratio.log()).sum(dim=-1).clamp(min=0.0)
        counted = total > 0
        self._divergence.add(divergence.masked_fill(~counted, 0.0), counted.double())

    def add_entities(self, mass: Tensor, batch: AnnotatedBatch) -> None:
        """Add the attention ``(batch, heads, keys)`` that a sentence's tokens have got."""
        on_words = mass.masked_fill((batch.word < 0).unsqueeze(1), 0.0).sum(dim=-1)
        on_entities = (mass * batch.entities.unsqueeze(1)).sum(dim=-1)
        self._entities.add(on_entities, on_words)

    def add_dependencies(self, weights: Tensor, batch: AnnotatedBatch, relations: int) -> None:
        """Add weights ``(batch, heads, queries, keys)`` in float64 of self-attention."""
        largest, looked_at = _between_words(weights, batch).max(dim=-1)  # (batch, heads, words)
        looked_at = looked_at.masked_fill(largest <= 0, -1)
        for direction, query, key in (
            (TO_HEAD, batch.arc_dependent, batch.arc_head),
            (TO_DEPENDENT, batch.arc_head, batch.arc_dependent),
        ):
            right = looked_at[batch.arc_sentence, :, query] == key.unsqueeze(1)  # (arcs, heads)
            hits = self._hits.get(direction)
            if hits is None:
                hits = self._hits[direction] = right.new_zeros(
                    relations, self.heads, dtype=torch.long
                )
            hits.index_add_(0, batch.arc_relation, right.long())
        if self._arcs is None:
            self._arcs = batch.arc_relation.new_zeros(relations)
        self._arcs.index_add_(0, batch.arc_relation, torch.ones_like(batch.arc_relation))

    def head(self, head: int, relations: tuple[str, ...]) -> dict[str, Any]:
        """The numbers of one head."""
        dependencies = None
        if self._arcs is not None:
            hits = {direction: value[:, head].tolist() for direction, value in self._hits.items()}
            counted = zip(relations, self._arcs.tolist(), strict=True)
            dependencies = {
                name: {direction: value[number] / count for direction, value in hits.items()}
                for number, (name, count) in enumerate(counted)
                if count
            }
        return {
            "dependencies": dependencies or None,
            "pos_kl": self._divergence.value((head,)),
            "named_entity": self._entities.value((head,)),
        }
