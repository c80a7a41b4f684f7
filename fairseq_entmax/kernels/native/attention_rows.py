"""Attention with alpha-entmax in C, from scores to outputs and back, on the support alone.

The forward pass has one product of queries and keys, whose scores never reach memory. It keeps the
support: of each query the keys with a probability above zero, and these. The backward pass works
on that. What it keeps is as it is before dropout, which a backward pass finds again by its seed. The C
code is ``attention_rows.h``, for short rows ``attention_short.h`` and ``attention_dense.h``, and
``dropout.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_entmax.kernels.attention import Inputs
from fairseq_entmax.kernels.inputs import ScoreSettings, dense_rows, positions_first
from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native.arguments import (
    Gradients,
    Matrices,
    Shape,
    blocks,
    of_heads,
    summed,
)

# For the support of so few keys there is room from the start: it need not be put together
FEW_KEYS = 160


def _as_read(settings: ScoreSettings) -> ScoreSettings:
    """The masks as the library reads them."""
    padding, mask = settings[:2]
    mask = None if mask is None else mask.to(torch.float32).contiguous()
    padding = None if padding is None else padding.contiguous()
    return settings._replace(key_padding_mask=padding, attn_mask=mask)


def _threads(query: Tensor, key: Tensor) -> int:
    heads = query.size(0) * query.size(1)
    return library.threads_for(heads * query.size(2) * key.size(2), heads * blocks(query))


class _Kept:
    """What the forward pass keeps for the backward pass, before it is known how much that is."""

    def __init__(self, query: Tensor, key: Tensor) -> None:
        self._blocks = query.size(0) * query.size(1) * blocks(query)
        self.starts = torch.zeros(self._blocks * library.lanes() + 1, dtype=torch.int64)
        self._pointers, self._room = None, None
        if key.size(2) <= FEW_KEYS:
            most = self._blocks * library.lanes() * key.size(2)
            kinds = (torch.int32, torch.float32)
            self._room = tuple(torch.empty(most, dtype=dtype) for dtype in kinds)
        else:
            self._pointers = (ctypes.c_void_p * max(self._blocks, 1))()

    @property
    def addresses(self) -> tuple[int | None, ...]:
        """Where the library writes: starts, pointers, keys and probabilities."""
        pointers = None if self._pointers is None else ctypes.addressof(self._pointers)
        return (
            self.starts.data_ptr(),
            pointers,
            *(tensor.data_ptr() for tensor in self._room or ()),
            *(() if self._room else (None, None)),
        )

    def take(self) -> Sequence[Tensor]:
        """The support; what the library has of it is freed.

        ``(batch * heads * queries up to a multiple of the lanes + 1,)``, int64: where each query's
        begins, and where the last one's ends; the keys, int32, which rise; the probabilities.
        """
        total = int(self.starts[-1])
        if self._room:
            keys, probs = (tensor[:total] for tensor in self._room)
            if 2 * total < self._room[0].numel():  # no more than twice what is needed stays
                keys, probs = keys.clone(), probs.clone()
            return self.starts, keys, probs
        assert self._pointers is not None
        try:
            keys = torch.empty(total, dtype=torch.int32)
            probs = torch.empty(total, dtype=torch.float32)
        except RuntimeError:  # as torch says that there is no memory
            self.drop()
            raise
        library.library().entmax_attention_take(
            ctypes.addressof(self._pointers),
            *(self.starts.data_ptr(), self._blocks, keys.data_ptr(), probs.data_ptr()),
        )
        return self.starts, keys, probs

    def drop(self) -> None:
        if self._pointers is not None:
            library.library().entmax_attention_take(
                ctypes.addressof(self._pointers), None, self._blocks, None, None
            )


def forward(inputs: Inputs, keeps: bool) -> tuple[Tensor, Sequence[Tensor]]:
    """As :class:`fairseq_entmax.kernels.attention.Backend`; what is kept is the support."""
    query, key, value = inputs[:3]
    output, epsilon = positions_first(query), of_heads(inputs.epsilon, query.size(1))
    kept = _Kept(query, key) if keeps else None
    if output.numel():
        settings = _as_read(inputs.settings)
        shape = Shape.of(inputs, epsilon, settings)
        failed = library.library().entmax_attention_forward(
            ctypes.byref(shape),
            *(ctypes.byref(Matrices.of(tensor)) for tensor in (query, key, value, output)),
            *((None,) * 4 if kept is None else kept.addresses),
            _threads(query, key),
        )
        if failed and kept is not None:
            kept.drop()
        library.check(failed)
    return output, () if kept is None else kept.take()


def backward(
    inputs: Inputs, output: None, kept: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool]
) -> Sequence[Tensor | None]:
    """As :class:`fairseq_entmax.kernels.attention.Backend`."""
    # Hooks on what is saved may give it back in other places
    rows = [dense_rows(tensor) for tensor in (*inputs[:3], grad)]
    query, key = rows[:2]
    epsilon = of_heads(inputs.epsilon, query.size(1))
    grads = [positions_first(tensor) for tensor in rows[:3]]
    for_epsilon = torch.zeros(query.shape[:2], dtype=torch.float64) if wanted[3] else None
    if query.numel() and key.numel():
        gradients = Gradients.of(rows, grads, for_epsilon)
        # The support has what masks leave
        settings = inputs.settings._replace(key_padding_mask=None, attn_mask=None)
        shape = Shape.of(inputs, epsilon, settings)
        starts, keys, probs = (tensor.contiguous() for tensor in kept)
        for_scores = torch.empty_like(probs)
        weights = torch.empty_like(probs) if settings.dropout else None
        library.check(
            library.library().entmax_attention_backward(
                ctypes.byref(shape),
                ctypes.byref(gradients),
                *(library.address(one) for one in (starts, keys, probs, for_scores, weights)),
                _threads(query, key),
            )
        )
    else:
        grads = [tensor.zero_() for tensor in grads]
    return *grads, summed(for_epsilon, inputs.epsilon), None
