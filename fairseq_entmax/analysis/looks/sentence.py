"""The result of ``look`` for one sentence: its tokens, attention and strongest links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from fairseq_entmax.analysis.data.tokens import without_marks
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF


@dataclass(frozen=True)
class Links:
    """The keys that one query attends to. In cross-attention the query is the predicted token."""

    token: str
    keys: list[tuple[str, float]]  # with their weights, which are above 0, the largest first
    zeros: int  # the number of visible keys with a weight of exactly 0
    visible: int
    places: Sequence[int] = ()  # positions of the keys in the sentence, from 0


@dataclass(frozen=True)
class Item:
    """A sentence as indices of dictionaries; ``generated`` counts what the model wrote itself."""

    source: Tensor
    target: Tensor | None = None
    generated: dict[str, int] | None = None


@dataclass(frozen=True)
class Sentence:
    """The attention of every head on one sentence.

    Attributes:
        text: the text as given.
        translation: the model's translation or the given one; None if the model writes none.
        is_generated: whether the model wrote the translation.
        tokens: the tokens of the text as the model reads them, with the end of the sentence.
        read_tokens: the last token that the decoder has read at each of its steps.
        target_tokens: the token that it predicts there. Both are empty without a decoder.
        attention: maps ``encoder-self``, ``decoder-self`` and ``cross``, as far as the model has
            them, to a list of weights ``(heads, queries, keys)`` float32, one per layer from the
            bottom; a layer without heads has 0 heads. Rows sum to 1. Queries are the attending
            tokens; in ``cross``, the steps that predict ``target_tokens``.
        gates: likewise the gates of each layer's heads as floats, 1 for a head without a gate.
        notes: remarks on unknown words, how the text was segmented, and how it was translated.
        is_words: whether tokens have been joined into words.
    """

    text: str
    translation: str | None
    is_generated: bool
    tokens: list[str]
    read_tokens: list[str]
    target_tokens: list[str]
    attention: dict[str, list[Tensor]]
    gates: dict[str, list[list[float]]]
    notes: list[str] = field(default_factory=list)
    is_words: bool = False
    # The word of each token, as TokenTable numbers them; the sentence's indices; and its session
    _word_numbers: Sequence[list[int]] = ()
    _item: Any = None
    _session: Any = None

    @property
    def first_attention(self) -> str:
        """The most informative attention: ``cross`` if there is one."""
        return next(name for name in (CROSS, DECODER_SELF, ENCODER_SELF) if name in self.attention)

    def axes(self, attention: str) -> tuple[list[str], list[str]]:
        """The tokens of an attention's queries and of its keys."""
        if attention == CROSS:
            return self.target_tokens, self.tokens
        tokens = self.read_tokens if attention == DECODER_SELF else self.tokens
        return tokens, tokens

    def weights(
        self, attention: str | None = None, layer: int | None = None, head: int | None = None
    ) -> Tensor:
        """Return the weights ``(queries, keys)`` float32 of a head, or a mean over layers or heads.

        The mean leaves out heads whose gate is closed, unless all of them are closed.

        Args:
            attention: None takes :attr:`first_attention`.
            layer, head: from 0; None is the mean.

        Raises:
            ValueError: there is no such attention, layer or head.
        """
        return self.chosen(attention, layer, head).mean(dim=0)

    def links(
        self,
        attention: str | None = None,
        layer: int | None = None,
        head: int | None = None,
        top: int = 3,
    ) -> list[Links]:
        """For each query, the ``top`` keys with the largest weights, by :meth:`weights`."""
        if top < 1:
            raise ValueError(f"--top got {top}: give 1 or more")
        name = attention or self.first_attention
        weights = self.weights(name, layer, head)
        queries, keys = self.axes(name)
        found = []
        for place, (token, row) in enumerate(zip(queries, weights, strict=True)):
            visible = place + 1 if name == DECODER_SELF else len(keys)
            order = row[:visible].argsort(descending=True, stable=True)[:top].tolist()
            places = [key for key in order if row[key] > 0]
            best = [(keys[key], float(row[key])) for key in places]
            found.append(Links(token, best, int(row[:visible].eq(0).sum()), visible, places))
        return found

    def chosen(
        self, attention: str | None = None, layer: int | None = None, head: int | None = None
    ) -> Tensor:
        """The weights ``(heads, queries, keys)`` that :meth:`weights` averages."""
        weights, gates = self._all(attention, layer, head)
        return weights[gates > 0] if bool((gates > 0).any()) else weights

    def heads_in_words(self, attention: str | None, layer: int | None, head: int | None) -> str:
        """Say in words which heads :meth:`weights` averages."""
        name = attention or self.first_attention
        number = len(self.chosen(name, layer, head))
        closed = len(self._all(name, layer, head)[0]) - number
        layers = sum(len(one) > (head or 0) for one in self.attention[name])
        parts = [name] if layer is None else [name, f"layer {layer}"]
        parts += [] if head is None else [f"head {head}"]
        if layer is None or head is None:
            where = f" in {layers} layer{'s' * (layers != 1)}" * (layer is None)
            parts.append(f"mean of {number} head{'s' * (number != 1)}{where}")
        return ", ".join(parts) + f", without {closed} with a closed gate" * (closed > 0)

    def words(self) -> Self:
        """Return the sentence in words: weights are summed over the tokens of a key's word, and
        averaged over those of a query's word."""
        if self.is_words:
            return self
        source, read, target = map(groups_of, self._word_numbers)
        sides = {
            ENCODER_SELF: (source, source),
            DECODER_SELF: (read, read),
            CROSS: (target, source),
        }
        return replace(
            self,
            tokens=joined_tokens(self.tokens, source),
            read_tokens=joined_tokens(self.read_tokens, read),
            target_tokens=joined_tokens(self.target_tokens, target),
            attention={
                name: [joined_weights(one, *sides[name]) for one in layers]
                for name, layers in self.attention.items()
            },
            is_words=True,
        )

    def as_json(self) -> dict[str, Any]:
        """All public fields, for scripts; weights are nested lists by layer, head, query, key."""
        fields = {name: one for name, one in vars(self).items() if not name.startswith("_")}
        lists = {name: [one.tolist() for one in layers] for name, layers in self.attention.items()}
        return {**fields, "attention": lists}

    def _all(
        self, attention: str | None, layer: int | None, head: int | None
    ) -> tuple[Tensor, Tensor]:
        """The selected weights ``(heads, queries, keys)``, closed heads included, and the gates."""
        name = attention or self.first_attention
        if name not in self.attention:
            known = " and ".join(one for one in ATTENTIONS if one in self.attention)
            raise ValueError(f"--attention got {name!r}: this model has {known}")
        layers = self.attention[name]
        if layer is not None and not 0 <= layer < len(layers):
            raise ValueError(f"--layer got {layer}: {name} has layers 0 to {len(layers) - 1}")
        places = range(len(layers)) if layer is None else [layer]
        most = max(len(layers[place]) for place in places)
        where = name if layer is None else f"layer {layer} of {name}"
        if most == 0:
            raise ValueError(f"{where} has no heads left: choose another --attention or --layer")
        if head is not None and not 0 <= head < most:
            raise ValueError(f"--head got {head}: {where} has heads 0 to {most - 1}")
        heads = slice(None) if head is None else slice(head, head + 1)
        weights = torch.cat([layers[place][heads] for place in places])
        return weights, torch.tensor([g for at in places for g in self.gates[name][at][heads]])


def groups_of(words: Sequence[int]) -> list[list[int]]:
    """Group positions of tokens by their word numbers; tokens with one below 0 stay alone."""
    groups: list[list[int]] = []
    for place, word in enumerate(words):
        if word < 0 or place == 0 or word != words[place - 1]:
            groups.append([])
        groups[-1].append(place)
    return groups


def joined_tokens(tokens: Sequence[str], groups: Sequence[Sequence[int]]) -> list[str]:
    """Join tokens into words, without the marks of subwords."""
    return [without_marks("".join(tokens[place] for place in group)) for group in groups]


def joined_weights(
    weights: Tensor, queries: Sequence[list[int]], keys: Sequence[list[int]]
) -> Tensor:
    """Weights of words: the sum over the tokens of a key, the mean over those of a query.

    Row sums stay the same. A word's weight is exactly 0 if the weights of all its tokens are."""
    of_words = torch.stack([weights[..., group].sum(dim=-1) for group in keys], dim=-1)
    return torch.stack([of_words[:, group].mean(dim=1) for group in queries], dim=1)
