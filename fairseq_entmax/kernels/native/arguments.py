"""What the functions of the library for attention are given, as in ``attention.h``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_entmax.kernels.attention import Inputs
from fairseq_entmax.kernels.dropout import least_kept
from fairseq_entmax.kernels.inputs import ScoreSettings
from fairseq_entmax.kernels.native import library


class Matrices(ctypes.Structure):
    """A matrix for each sentence and head."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("sentence", ctypes.c_long),
        ("head", ctypes.c_long),
        ("row", ctypes.c_long),
    )

    @classmethod
    def of(cls, tensor: Tensor) -> Matrices:
        return cls(tensor.data_ptr(), *tensor.stride()[:3])


class Shape(ctypes.Structure):
    """Sizes, parameters and masks. The tensors are to live as long as this is used."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("sentences", "heads", "queries", "keys", "size")),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("epsilon", "padding", "mask")),
        ("kind", ctypes.c_long),
        ("strength", ctypes.c_void_p),
        ("causal", ctypes.c_long),
        # Of dropout.h
        *(("seed", ctypes.c_int64), ("least_kept", ctypes.c_uint32), ("factor", ctypes.c_float)),
    )

    @classmethod
    def of(
        cls,
        inputs: Inputs,
        epsilon: Tensor,
        settings: ScoreSettings,
        kind: int = 0,
        strength: Tensor | None = None,
    ) -> Shape:
        """Of attention, with masks as the function reads them; ``kind`` is the structure's number."""
        padding, mask, causal, scale, dropout, seed = settings
        drops = (0, 0, 0.0)
        if dropout:
            assert seed is not None
            drops = (int(seed), least_kept(dropout), 1 / (1 - dropout))
        query, key = inputs[:2]
        return cls(
            *(*query.shape[:3], key.size(2), query.size(3), scale),
            *(epsilon.data_ptr(), library.address(padding), library.address(mask)),
            *(kind, library.address(strength), int(causal), *drops),
        )


class Gradients(ctypes.Structure):
    """Inputs, the gradient of the output, and where gradients go."""

    _fields_ = (
        *((name, Matrices) for name in ("query", "key", "value", "grad")),
        *((name, Matrices) for name in ("for_query", "for_key", "for_value")),
        ("for_alpha", ctypes.c_void_p),
        ("for_strength", ctypes.c_void_p),
    )

    @classmethod
    def of(
        cls,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        for_alpha: Tensor | None,
        for_strength: Tensor | None = None,
    ) -> Gradients:
        return cls(
            *(Matrices.of(tensor) for tensor in (*inputs, *outputs)),
            *(library.address(for_alpha), library.address(for_strength)),
        )


def takes(query: Tensor) -> bool:
    """Whether the kernels are for such queries: float32 on a CPU."""
    return query.device.type == "cpu" and query.dtype == torch.float32


def of_heads(parameter: float | Tensor, heads: int) -> Tensor:
    """A number for each head, as the library reads them."""
    return torch.as_tensor(parameter, dtype=torch.float32).expand(heads).contiguous()


def summed(each: Tensor | None, like: float | Tensor) -> Tensor | None:
    """Numbers of sentences and heads, summed to a parameter."""
    if each is None or not isinstance(like, Tensor):
        return None
    return each.sum(0).sum_to_size(like.shape).to(like.dtype)


def blocks(query: Tensor) -> int:
    """How many times the queries of a head fill the lanes."""
    return -(-query.size(2) // library.lanes())
