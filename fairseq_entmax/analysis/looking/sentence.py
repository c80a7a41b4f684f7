"""What ``look`` gives of one sentence: its tokens, its attention, the strongest links."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis.looking.words import groups_of, joined_tokens, joined_weights
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF

TOP = 3


@dataclass(frozen=True)
class Links:
    """Where one token looks.

    Attributes:
        token: that looks; of cross, that is said.
        keys: the tokens with the most weight, and it, the largest first; never one of weight 0.
        zeros: of how many keys the weight is exactly 0.
        visible: how many keys it may look at.
        places: of ``keys`` in the sentence, from 0.
    """

    token: str
    keys: list[tuple[str, float]]
    zeros: int
    visible: int
    places: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Item:
    """A sentence in the numbers of the dictionaries.

    Attributes:
        source: ``(tokens,)``, with the end of the sentence.
        target: likewise what is written; None where nothing is.
        label: the class that a classifier says.
        generated: of what the model wrote itself, how much; None otherwise.
    """

    source: Tensor
    target: Tensor | None = None
    label: int = 0
    generated: dict[str, int] | None = None


@dataclass(frozen=True)
class Classified:
    """What a classifier says of the sentence.

    Attributes:
        label: the most likely class.
        probability: its own.
        pooling: each attention that pools to its weights ``(heads, tokens)`` float32.
        visible: likewise the tokens that it may look at, ``(tokens,)`` bool: those of its own text,
            without marks of beginnings and ends.
    """

    label: str
    probability: float
    pooling: dict[str, Tensor]
    visible: dict[str, Tensor]


@dataclass(frozen=True)
class Look:
    """The attention of every head on one sentence; as text, its strongest links.

    Attributes:
        text: as it was given.
        translation: what the model said of it, or was to have said; None where it says nothing.
        is_generated: whether the model said so itself.
        tokens: of the text, as the model reads them, the end of the sentence among them.
        read_tokens: what the decoder has read at each of its steps, the last of it.
        target_tokens: what it predicts there; both empty where nothing is written.
        attention: ``encoder-self``, ``decoder-self`` and ``cross``, those there are, to a list of
            the layers' weights ``(heads, queries, keys)`` float32, from the bottom; a layer
            without heads has none. Rows add up to 1. Queries are the tokens that look, of cross
            the steps that predict ``target_tokens``.
        gates: likewise of each layer the heads' gates, a float each, 1 where there is none.
        classified: of a classifier.
        notes: what is to be known of it: unknown words, how the text was cut, what was searched.
        is_words: whether tokens are joined to words.
    """

    text: str
    translation: str | None
    is_generated: bool
    tokens: list[str]
    read_tokens: list[str]
    target_tokens: list[str]
    attention: dict[str, list[Tensor]]
    gates: dict[str, list[list[float]]]
    classified: Classified | None = None
    notes: list[str] = field(default_factory=list)
    is_words: bool = False
    # The number of each token's word, as TokenTable has it; the sentence; before it was joined to
    # words; and what draws the page
    _word_numbers: tuple[list[int], list[int], list[int]] = ([], [], [])
    _item: Item | None = None
    _of_tokens: Look | None = None
    _page: Callable[[Sequence[Look], str | os.PathLike[str], bool], None] | None = None

    @property
    def first_attention(self) -> str:
        """The attention that says most: ``cross`` where there is one."""
        return next(name for name in (CROSS, DECODER_SELF, ENCODER_SELF) if name in self.attention)

    def axes(self, attention: str) -> tuple[list[str], list[str]]:
        """The tokens of an attention's queries and of its keys."""
        if attention == CROSS:
            return self.target_tokens, self.tokens
        own = self.read_tokens if attention == DECODER_SELF else self.tokens
        return own, own

    def weights(
        self, attention: str | None = None, layer: int | None = None, head: int | None = None
    ) -> Tensor:
        """The weights of one head, or a mean over layers, heads or both.

        The mean leaves out heads whose gate is closed, unless it is of them alone.

        Args:
            attention: None takes :attr:`first_attention`.
            layer, head: from 0; None is the mean.

        Returns:
            ``(queries, keys)`` float32.

        Raises:
            ValueError: there is no such attention, layer or head.
        """
        own, _ = self._chosen(attention, layer, head)
        return own.mean(dim=0)

    def links(
        self,
        attention: str | None = None,
        layer: int | None = None,
        head: int | None = None,
        top: int = TOP,
    ) -> list[Links]:
        """For each token that looks, those with the most weight.

        Args:
            attention, layer, head: as for :meth:`weights`.
            top: how many of each, 1 or more.

        Raises:
            ValueError: as :meth:`weights`, or ``top`` is below 1.
        """
        if top < 1:
            raise ValueError(f"top got {top}: give 1 or more")
        name = attention or self.first_attention
        weights = self.weights(name, layer, head)
        queries, keys = self.axes(name)
        found = []
        for place, (token, row) in enumerate(zip(queries, weights, strict=True)):
            visible = place + 1 if name == DECODER_SELF else len(keys)
            order = row[:visible].sort(descending=True, stable=True)
            best = zip(order.indices.tolist()[:top], order.values.tolist()[:top], strict=True)
            own = [(key, weight) for key, weight in best if weight > 0]
            named = [(keys[key], weight) for key, weight in own]
            zeros = int(row[:visible].eq(0).sum())
            found.append(Links(token, named, zeros, visible, [key for key, _ in own]))
        return found

    def chosen(self, attention: str, layer: int | None, head: int | None) -> Tensor:
        """The weights ``(heads, queries, keys)`` that :meth:`weights` is the mean of."""
        return self._chosen(attention, layer, head)[0]

    def said_of(self, attention: str | None, layer: int | None, head: int | None) -> str:
        """Of which heads :meth:`weights` are, in words."""
        name = attention or self.first_attention
        own, closed = self._chosen(name, layer, head)
        layers = sum(len(one) > 0 for one in self.attention[name])
        if layer is not None:
            where = f"layer {layer}, " + (f"head {head}" if head is not None else "")
        else:
            where = "" if head is None else f"head {head} of "
        if layer is None or head is None:
            where += f"mean of {len(own)} head{'s' * (len(own) != 1)}"
            where += f" in {layers} layer{'s' * (layers != 1)}" * (layer is None)
        if closed:
            where += f", without {closed} whose gate is closed"
        return f"{name}, {where}"

    def words(self) -> Look:
        """The same of words: weights summed over the tokens of a word that is looked at, and
        meaned over those of a word that looks."""
        if self.is_words:
            return self
        source, read, target = map(groups_of, self._word_numbers)
        groups = {
            ENCODER_SELF: (source, source),
            DECODER_SELF: (read, read),
            CROSS: (target, source),
        }
        said = self.classified
        if said is not None:
            pooling = {
                name: torch.stack([weights[:, group].sum(dim=1) for group in source], dim=1)
                for name, weights in said.pooling.items()
            }
            visible = {
                name: torch.stack([seen[group].any() for group in source])
                for name, seen in said.visible.items()
            }
            said = replace(said, pooling=pooling, visible=visible)
        return replace(
            self,
            tokens=joined_tokens(self.tokens, source),
            read_tokens=joined_tokens(self.read_tokens, read),
            target_tokens=joined_tokens(self.target_tokens, target),
            attention={
                name: [joined_weights(one, *groups[name]) for one in layers]
                for name, layers in self.attention.items()
            },
            classified=said,
            is_words=True,
            _of_tokens=self,
        )

    @property
    def of_tokens(self) -> Look:
        """The same before it was joined to words."""
        return self if self._of_tokens is None else self._of_tokens

    @property
    def item(self) -> Item:
        """The sentence in numbers."""
        assert self._item is not None
        return self._item

    def beginning(self, tokens: int) -> Look:
        """The same of so many tokens of a text alone, of which no token sees those behind it."""
        numbers = tuple(one[:tokens] for one in self._word_numbers)
        return replace(
            self,
            tokens=self.tokens[:tokens],
            read_tokens=self.read_tokens[:tokens],
            target_tokens=self.target_tokens[:tokens],
            attention={
                name: [one[:, :tokens, :tokens] for one in layers]
                for name, layers in self.attention.items()
            },
            _word_numbers=(numbers[0], numbers[1], numbers[2]),
        )

    def write_report(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the report's page on this sentence.

        Args:
            path: of the HTML file, which appears whole or not at all.
            overwrite: whether it may be there already.

        Raises:
            FileExistsError, FileNotFoundError, ValueError: the file cannot be written.
            ModuleNotFoundError: the extra ``report`` is not installed.
        """
        assert self._page is not None
        self._page([self], path, overwrite)

    def as_json(self) -> dict[str, Any]:
        """All of it, for scripts: weights as nested lists, layer, head, query, key."""
        said = self.classified
        return {
            "text": self.text,
            "translation": self.translation,
            "is_generated": self.is_generated,
            "is_words": self.is_words,
            "tokens": self.tokens,
            "read_tokens": self.read_tokens,
            "target_tokens": self.target_tokens,
            "notes": self.notes,
            "gates": self.gates,
            "attention": {
                name: [one.tolist() for one in layers] for name, layers in self.attention.items()
            },
            "classified": None
            if said is None
            else {
                "label": said.label,
                "probability": said.probability,
                "pooling": {name: one.tolist() for name, one in said.pooling.items()},
                "visible": {name: one.tolist() for name, one in said.visible.items()},
            },
        }

    def __str__(self) -> str:
        from fairseq_entmax.analysis.looking.terminal import shown

        return shown(self)

    def _chosen(
        self, attention: str | None, layer: int | None, head: int | None
    ) -> tuple[Tensor, int]:
        """The weights ``(heads, queries, keys)`` of what is asked for, and how many are closed."""
        name = attention or self.first_attention
        if name not in self.attention:
            known = " and ".join(one for one in ATTENTIONS if one in self.attention)
            raise ValueError(f"--attention got {name!r}: this model has {known}")
        layers = self.attention[name]
        if layer is not None and not 0 <= layer < len(layers):
            raise ValueError(f"--layer got {layer}: {name} has the layers 0 to {len(layers) - 1}")
        places = range(len(layers)) if layer is None else [layer]
        most = max(len(layers[place]) for place in places)
        if most == 0:
            raise ValueError(f"--layer got {layer}: it has no heads left in {name}")
        if head is not None and not 0 <= head < most:
            where = name if layer is None else f"layer {layer} of {name}"
            raise ValueError(f"--head got {head}: {where} has the heads 0 to {most - 1}")
        chosen = [
            (layers[place][number], self.gates[name][place][number])
            for place in places
            for number in ([head] if head is not None else range(len(layers[place])))
            if number < len(layers[place])
        ]
        open_ones = [weights for weights, gate in chosen if gate > 0]
        closed = len(chosen) - len(open_ones)
        if not open_ones:
            return torch.stack([weights for weights, _ in chosen]), 0
        return torch.stack(open_ones), closed
