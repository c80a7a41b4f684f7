"""Caches of decoding: keys and values stay where they were written, but read as fairseq's cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from fairseq_entmax.kernels.inputs import Cached

# fairseq's names
KEY, VALUE, PADDING = "prev_key", "prev_value", "prev_key_padding_mask"
# float32 numbers in a cache line
_LINE = 16
# Positions that a new cache has room for
_ROOM = 32


class Cache(Mapping[str, "Tensor | None"]):
    """Reads like fairseq's dictionary, in which each hypothesis has its own keys and values."""

    names: tuple[str, ...]
    epsilon: Tensor  # alpha - 1 of each head
    _origins: Tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def hypotheses(self) -> int:
        return self._origins.size(0)

    def cached(self) -> Cached:
        """What a kernel reads in a step."""
        raise NotImplementedError

    def reorder(self, new_order: Tensor) -> None:
        """Select or reorder hypotheses."""
        self._origins = self._origins.index_select(0, new_order)


class SourceCache(Cache):
    """Keys and values of each source, stored once for all its hypotheses.

    ``origins`` holds the source of each hypothesis.
    """

    names = (KEY, VALUE, PADDING)

    def __init__(
        self,
        key: Tensor,
        value: Tensor,
        epsilon: Tensor,
        padding: Tensor | None,
        origins: Tensor,
    ) -> None:
        self._key, self._value, self.epsilon, self._padding = key, value, epsilon, padding
        self._origins = origins
        # As long as whole sentences leave the search, this many in a row have the same source
        self._together = max(1, len(origins) // max(1, len(key)))

    def __getitem__(self, name: str) -> Tensor | None:
        tensor = {KEY: self._key, VALUE: self._value, PADDING: self._padding}[name]
        return None if tensor is None else tensor[self._origins.long()]

    def cached(self) -> Cached:
        number = self._key.size(2)
        return Cached(self._key, self._value, number, self._origins, self._padding, self._together)


class HypothesesCache(Cache):
    """Keys and values of self-attention, with one place in memory per hypothesis.

    A hypothesis writes into the place of its number, and remembers for each position in which place
    its history was written. Keys and values are ``(hypotheses, heads, positions, head_dim)``.
    """

    names = (KEY, VALUE)

    def __init__(self, key: Tensor, value: Tensor, epsilon: Tensor) -> None:
        self._key, self._value, self.epsilon = key, value, epsilon
        self._origins = _origins_of(key)
        self._number = key.size(2)

    def __getitem__(self, name: str) -> Tensor:
        return self._gathered({KEY: self._key, VALUE: self._value}[name])

    def cached(self) -> Cached:
        """As for any cache, with room made for one more position, which the kernel writes."""
        hypotheses, room = self._origins.shape
        if self._number == room or hypotheses > self._key.size(0):
            self._move(max(_ROOM, 2 * self._number))
        self._number += 1
        return Cached(self._key, self._value, self._number, self._origins)

    def _move(self, room: int) -> None:
        """Move to more room, without the places of finished hypotheses."""
        moves = len(self._origins) != self._key.size(0)
        number = self._number
        old = [self._gathered(one) if moves else one for one in (self._key, self._value)]
        places = old[0].size(0)
        self._key, self._value = (_place(one, places, room) for one in old)
        self._key[:, :, :number] = old[0][:, :, :number]
        self._value[:, :, :number] = old[1][:, :, :number]
        origins = _origins_of(self._key)
        if not moves:
            origins[:, :number] = self._origins[:, :number]
        self._origins = origins

    def _gathered(self, tensor: Tensor) -> Tensor:
        """``(hypotheses, heads, positions, head_dim)``."""
        origins = self._origins[:, : self._number].long()
        positions = torch.arange(self._number, device=tensor.device)
        return tensor[origins, :, positions].transpose(1, 2).contiguous()


def _place(like: Tensor, places: int, room: int) -> Tensor:
    """Empty ``(places, heads, room, head_dim)``, by position in memory, as positions are written.

    Positions are an odd number of cache lines apart, so that they do not all fall into the same few
    sets of the processor's caches.
    """
    heads, head_dim = like.size(1), like.size(3)
    numbers = places * heads * head_dim
    by_position = like.new_empty((room, (-(-numbers // _LINE) | 1) * _LINE))[:, :numbers]
    return by_position.view(room, places, heads, head_dim).permute(1, 2, 0, 3)


def _origins_of(key: Tensor) -> Tensor:
    places = torch.arange(key.size(0), dtype=torch.int32, device=key.device)
    return places[:, None].repeat(1, key.size(2))
