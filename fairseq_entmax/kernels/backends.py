"""What a backend is: a :class:`Kernel`, whose parts are functions of modules that keep nothing.

All are written in ``epsilon = alpha - 1``, or of ``PNORM`` p - 1 (see
:mod:`fairseq_entmax.kernels.torch_ops` and :mod:`fairseq_entmax.kernels.structure`). Keys are last;
``-inf`` marks a masked key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

# The parts of a backend
ROWS, ATTENTION, LOSSES, DECODING = "rows", "attention", "losses", "decoding"

# Of scores, epsilon and strength; None where it is not wanted
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


class Kernel(NamedTuple):
    """A backend that is not torch's own operations.

    Attributes:
        name: by which the environment asks for it.
        device: type of the devices for which it is taken where nobody asks.
        dtypes: of what it computes.
        parts: the module of each part that it has, imported once that is used. ``supports`` of a module
            says whether it is for a tensor, with the dtype and the size of heads of attention.
        has_structure: whether its rows are for other structures than ``PLAIN``.
        missing: what is wrong on a device, and what to do; empty where nothing is.
        about: what is logged once it is used.
        cost: what is logged where it is missing.
    """

    name: str
    device: str
    dtypes: tuple[torch.dtype, ...]
    parts: Mapping[str, str]
    has_structure: bool
    missing: Callable[[torch.device], str]
    about: Callable[[], str]
    cost: str


class LossParts(NamedTuple):
    """A loss of each row, and what it was made of.

    Attributes:
        loss: ``(…)``, of what is computed with gradients of the scores.
        support: ``(…)``, int64, how many keys have a probability above zero; 0 where the row is
            NaN. At alpha = 1 all that are not masked, even where rounding leaves nothing of them.
        target_prob: ``(…)``, the probability of the target, without a gradient.
    """

    loss: Tensor
    support: Tensor
    target_prob: Tensor


class Rows(Protocol):
    """Alpha-entmax along the last dimension, with structure or without, and its gradients."""

    def probabilities(
        self, scores: Tensor, structure: str, epsilon: float | Tensor, strength: float | Tensor = 0
    ) -> Tensor:
        """Map scores ``(..., keys)`` to probabilities.

        ``structure`` is of :mod:`fairseq_entmax.kernels.structure`. Parameters are numbers, or
        tensors that broadcast against the scores with a last dimension of size 1. Keys of a group have
        the same number, to the bit. A row with every key masked is all zeros; any other that has a NaN
        parameter, or NaN or ``+inf`` among its scores, is all NaN.
        """

    def gradients(
        self,
        probs: Tensor,
        structure: str,
        epsilon: float | Tensor,
        strength: float | Tensor,
        masked: Tensor | None,
        grad: Tensor,
        wanted: tuple[bool, bool, bool],
    ) -> Gradients:
        """Gradients ``(..., keys)`` of the scores, and ``(..., 1)`` of epsilon and of the strength.

        Those of parameters are a number for each row, to be summed over the rows that share one.
        ``probs`` is what :meth:`probabilities` returned, ``grad`` the gradient with respect to it;
        ``masked`` is true at masked keys, and needed where ``TV`` wants that of its strength alone.
        """


class Losses(Protocol):
    """The loss of alpha-entmax of a target (:func:`fairseq_entmax.mappings.entmax_loss_parts`)."""

    def losses(
        self, scores: Tensor, target: Tensor, epsilon: float, smoothing: float
    ) -> tuple[LossParts, tuple[Tensor, ...]]:
        """The losses, without a graph, and what the backward pass needs beside the scores.

        An epsilon of 0 is for torch's alone.
        """

    def gradients(
        self,
        scores: Tensor,
        target: Tensor,
        epsilon: float,
        smoothing: float,
        saved: tuple[Tensor, ...],
        grad: Tensor,
    ) -> Tensor:
        """The gradient of the scores, ``(..., keys)``, by ``grad`` of the losses, ``(...)``."""
