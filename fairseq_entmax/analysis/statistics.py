"""Sums over a data set, one batch at a time, from which the numbers of every head follow.

What is kept does not grow with the data. Batches of any size, in any order, give the same
numbers up to rounding; sums are float64.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping as Dictionary
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis import measures
from fairseq_entmax.analysis.arguments import ONE_PASS_MEASURES
from fairseq_entmax.analysis.batch import Batch, Side
from fairseq_entmax.analysis.tokens import (
    DECLARATIVE,
    INTERROGATIVE,
    TokenTable,
    final_punctuation,
    rare_tokens,
)
from fairseq_entmax.attentions import CROSS, DECODER_SELF, ENCODER_SELF

# What can be measured in one pass. Entropy and divergence are always worked out, as sentences
# whose heads differ most are looked for
DENSITY_BINS = 20
RARE_RANK = 500
POSITIONAL_SHARE = 0.9


class LayerStatistics:
    """Sums over one attention of one layer.

    Args:
        attention: ``encoder-self``, ``decoder-self`` or ``cross``.
        heads: how many heads it has, 1 or more.
        wanted: which of :data:`ONE_PASS_MEASURES` to make.

    Attributes:
        sums: name to a float64 tensor whose first dimension, where it has one, is heads.
    """

    def __init__(
        self, attention: str, heads: int, wanted: Collection[str] = ONE_PASS_MEASURES
    ) -> None:
        self.attention = attention
        self.heads = heads
        self.wanted = frozenset(wanted)
        self.sums: dict[str, Tensor] = {}

    def update(self, weights: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Add one batch.

        Args:
            weights: ``(batch, heads, queries, keys)``.
            batch: its sentences.

        Returns:
            The heads' diversity in each sentence, summed over its queries, and the number of
            those, both ``(batch,)``.
        """
        queries, keys = batch.sides(self.attention)
        attendable = batch.attendable(self.attention)
        best = measures.maximum(weights) if self.wanted & {"offsets", "rare_word"} else None
        if "density" in self.wanted:
            self._add_density(weights, queries, attendable)
        if "confidence" in self.wanted:
            self._add_confidence(weights, queries, keys, attendable)
        if "offsets" in self.wanted and best is not None:
            self._add_offsets(weights, best, batch)
        if batch.table is not None and self.attention != DECODER_SELF:
            if "rare_word" in self.wanted and best is not None:
                self._add_rare(best, batch.table, queries, keys)
            if "final_punctuation" in self.wanted:
                self._add_punctuation(weights, batch.table, queries, keys)
        if (
            "subword_merging" in self.wanted
            and queries.words is not None
            and self.attention != CROSS
        ):
            self._add_merging(weights, queries.words)
        return self._add_entropy(weights, queries, attendable)

    def _add(self, name: str, value: Tensor) -> None:
        value = value.double()
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def _add_mean(self, name: str, values: Tensor, mask: Tensor) -> None:
        """Add values ``(batch, heads, queries)`` where ``(batch, queries)`` bool is true."""
        self._add(name, values.masked_fill(~mask[:, None], 0).sum(dim=(0, 2), dtype=torch.float64))
        self._add(f"{name}/count", mask.sum())

    def _add_density(self, weights: Tensor, queries: Side, attendable: Tensor) -> None:
        densities = measures.density(weights, attendable)
        self._add_mean("density", densities, queries.real)
        by_sentence = (
            densities.masked_fill(~queries.real[:, None], 0).sum(dim=2, dtype=torch.float64)
            / queries.lengths.clamp(min=1)[:, None]
        )
        # Rounding must not put a mean of whole rows into the bin below
        bins = (by_sentence * DENSITY_BINS + 1e-9).long().clamp(max=DENSITY_BINS - 1)
        one_hot = torch.nn.functional.one_hot(bins, DENSITY_BINS)
        self._add("density_histogram", one_hot.sum(dim=0))

    def _add_confidence(
        self, weights: Tensor, queries: Side, keys: Side, attendable: Tensor
    ) -> None:
        largest = measures.confidence(weights, keys.end)
        ends = (keys.end & keys.real).sum(dim=1)
        # The first query of the decoder sees an end of a sentence alone
        has_other = queries.real & (attendable > ends[:, None])
        self._add_mean("confidence", largest, has_other)

    def _add_entropy(
        self, weights: Tensor, queries: Side, attendable: Tensor
    ) -> tuple[Tensor, Tensor]:
        entropies = measures.entropy(weights)
        if "entropy" in self.wanted:
            self._add_mean("entropy", entropies, queries.real)
        diversities = measures.diversity(weights, attendable, entropies)
        counted = queries.real & ~diversities.isnan()
        by_sentence = diversities.masked_fill(~counted, 0).sum(dim=1, dtype=torch.float64)
        number = counted.sum(dim=1)
        if "diversity" in self.wanted:
            self._add("diversity", by_sentence.sum())
            self._add("diversity/count", number.sum())
        return by_sentence, number

    def _add_offsets(self, weights: Tensor, best: Tensor, batch: Batch) -> None:
        queries, keys = batch.sides(self.attention)
        attendable = batch.attendable(self.attention)
        offsets = torch.tensor(measures.OFFSETS, device=weights.device)
        length = queries.tokens.size(1)
        at, exists = measures.offset_keys(offsets, queries.start, keys.start, length, attendable)
        exists = exists & queries.real[:, :, None]
        self._add(
            "offset/weight",
            measures.weight_at(weights, at, exists).sum(dim=(0, 2), dtype=torch.float64),
        )
        self._add("offset/count", exists.sum(dim=(0, 1)))
        places = torch.arange(length, device=weights.device) - queries.start[:, None]
        offset = best - keys.start[:, None, None] - places[:, None]
        first = measures.OFFSETS[0]
        # Bins: below, each offset, above; and one for padding
        bins = len(measures.OFFSETS) + 3
        index = (offset - first + 1).clamp(0, bins - 2)
        index = index.masked_fill(~queries.real[:, None], bins - 1)
        index = index + bins * torch.arange(self.heads, device=weights.device)[:, None]
        counts = torch.bincount(index.flatten(), minlength=bins * self.heads)
        self._add("offset/maximum", counts.view(self.heads, bins)[:, :-1])

    def _add_rare(self, best: Tensor, table: TokenTable, queries: Side, keys: Side) -> None:
        first, two, rank = rare_tokens(table, keys.tokens)
        counted = queries.real & (rank >= RARE_RANK)[:, None]
        for name, places in (("rarest", first), ("two_rarest", two)):
            hits = places[:, None].expand(-1, best.size(1), -1).gather(2, best)
            self._add_mean(name, hits, counted)

    def _add_punctuation(
        self, weights: Tensor, table: TokenTable, queries: Side, keys: Side
    ) -> None:
        place, ending = final_punctuation(table, keys.tokens, ~keys.real | keys.end)
        index = place[:, None, None, None].expand(-1, weights.size(1), weights.size(2), 1)
        on_mark = weights.gather(3, index).squeeze(3)
        counted = queries.real
        if self.attention == ENCODER_SELF:
            # The mark's own query, and that of the end of the sentence, are no words
            positions = torch.arange(weights.size(2), device=weights.device)
            counted = counted & ~queries.end & (positions != place[:, None])
        for name, kind in (("interrogative", INTERROGATIVE), ("declarative", DECLARATIVE)):
            self._add_mean(name, on_mark, counted & (ending == kind)[:, None])

    def _add_merging(self, weights: Tensor, words: Tensor) -> None:
        mass = measures.mass_in_word(weights, words)
        scores, begins, several = measures.merging_by_word(mass, words)
        self._add_mean("merging", scores, begins)
        self._add_mean("merging_split", scores, several)

    def mean(self, name: str) -> Tensor | None:
        """The mean over what was counted, ``(heads,)``; None where nothing was."""
        count = self.sums.get(f"{name}/count")
        if count is None or count == 0:
            return None
        return self.sums[name] / count

    def diversity(self) -> float | None:
        """The mean divergence of the heads; None where no query had two keys."""
        value = self.mean("diversity")
        return None if value is None else float(value)

    def head(self, head: int) -> dict[str, Any]:
        """The numbers of one head, as ``analysis.json`` has them; None where nothing was counted."""
        histogram = self.sums.get("density_histogram")
        offsets = self._offsets(head) if "offset/maximum" in self.sums else None
        return {
            "density": self._of("density", head),
            "density_histogram": None if histogram is None else histogram[head].long().tolist(),
            "entropy": self._of("entropy", head),
            "confidence": self._of("confidence", head),
            "offsets": offsets,
            "positional": None if offsets is None else positional_role(offsets),
            "rare_word": self._group(head, rarest="rarest", two_rarest="two_rarest"),
            "subword_merging": self._group(head, all="merging", split="merging_split"),
            "final_punctuation": self._group(
                head, interrogative="interrogative", declarative="declarative"
            ),
        }

    def _group(self, head: int, **names: str) -> dict[str, float | None] | None:
        values = {key: self._of(name, head) for key, name in names.items()}
        return values if any(value is not None for value in values.values()) else None

    def _of(self, name: str, head: int) -> float | None:
        mean = self.mean(name)
        return None if mean is None else float(mean[head])

    def _offsets(self, head: int) -> dict[str, dict[str, float | None]]:
        names = [str(offset) for offset in measures.OFFSETS]
        maximum = self.sums["offset/maximum"][head]
        shares = (maximum / maximum.sum()).tolist()
        counts = self.sums["offset/count"].tolist()
        hits, weight = maximum[1:-1].tolist(), self.sums["offset/weight"][head].tolist()
        return {
            "maximum": dict(zip(["below", *names, "above"], shares, strict=True)),
            "share": {n: h / c if c else None for n, h, c in zip(names, hits, counts, strict=True)},
            "weight": {
                n: w / c if c else None for n, w, c in zip(names, weight, counts, strict=True)
            },
        }


class ModelStatistics:
    """Sums over every attention of a model.

    Args:
        wanted: which of :data:`ONE_PASS_MEASURES` to make.

    Attributes:
        layers: attention to layer to its sums; an attention without heads is absent.
    """

    def __init__(self, wanted: Collection[str] = ONE_PASS_MEASURES) -> None:
        self.layers: dict[str, dict[int, LayerStatistics]] = {}
        self._wanted = wanted

    def update(self, attention: Dictionary[str, Dictionary[int, Tensor]], batch: Batch) -> Tensor:
        """Add one batch.

        Args:
            attention: attention to layer to weights ``(batch, heads, queries, keys)``, as
                :class:`AttentionRecorder` gives them.
            batch: its sentences.

        Returns:
            How much heads differ in each sentence, ``(batch,)`` float64: the diversity, a mean
            over its queries, and over attentions and layers.
        """
        differences = []
        for name, layers in attention.items():
            for layer, weights in layers.items():
                known = self.layers.setdefault(name, {})
                if layer not in known:
                    known[layer] = LayerStatistics(name, weights.size(1), self._wanted)
                total, number = known[layer].update(weights, batch)
                differences.append(total / number.clamp(min=1))
        if not differences:  # all heads are pruned
            tokens = batch.source.tokens
            return torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
        return torch.stack(differences).mean(dim=0)


def positional_role(
    offsets: Dictionary[str, Dictionary[str, float | None]],
) -> dict[str, Any] | None:
    """The offset that a head looks at (Voita et al., section 5.1), or None.

    A positional head has its maximum at one offset in 90 % of the queries that have a key there,
    of which the first and last words of a sentence are none; and in more than half of all
    queries, so that what is so at the ends of sentences alone is no role. Its confidence is the
    mean weight there (Correia et al., section 5.2).
    """
    shares = [
        (share, name)
        for name, share in offsets["share"].items()
        if share is not None and (offsets["maximum"][name] or 0) > 0.5
    ]
    if not shares:
        return None
    share, name = max(shares)
    if share < POSITIONAL_SHARE:
        return None
    return {"offset": int(name), "share": share, "confidence": offsets["weight"][name]}
