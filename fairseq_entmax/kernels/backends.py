"""The interface of a backend: a :class:`Kernel`, whose parts are modules of stateless functions.

All of them use ``epsilon = alpha - 1``, or p - 1 for ``PNORM`` (see
:mod:`fairseq_entmax.kernels.torch_ops` and :mod:`fairseq_entmax.kernels.structure`). Keys are the
last dimension; ``-inf`` marks a masked key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

# The parts of a backend
ROWS, ATTENTION, LOSSES, DECODING = "rows", "attention", "losses", "decoding"

# The gradients of scores, epsilon and strength; None for one that is not wanted
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


class Kernel(NamedTuple):
    """A backend that is not torch's own operations.

    Attributes:
        name: the name by which the environment asks for it.
        device: the type of device on which it runs by default.
        dtypes: the dtypes that it takes.
        parts: the module of each part that it has, imported when first used. ``supports`` of a
            module says whether it takes a tensor; for attention, given a dtype and head size too.
        has_structure: whether its rows can have structures other than ``PLAIN``.
        missing: why it cannot run on a device, and what to do; empty if it can.
        about: the log message when it is first used.
        cost: the part of the log message that says what torch costs instead, if it cannot run.
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
    """The loss of each row, with its support and the probability of its target.

    Attributes:
        loss: ``(…)``, the only field with a gradient, that of the scores.
        support: ``(…)``, int64, how many keys have a probability above zero; 0 if the row is NaN.
            At alpha = 1 all keys that are not masked, even if some round to zero.
        target_prob: ``(…)``, the probability of the target, without a gradient.
    """

    loss: Tensor
    support: Tensor
    target_prob: Tensor


class Rows(Protocol):
    """Alpha-entmax along the last dimension, with or without structure, and its gradients."""

    def probabilities(
        self, scores: Tensor, structure: str, epsilon: float | Tensor, strength: float | Tensor = 0
    ) -> Tensor:
        """Map scores ``(..., keys)`` to probabilities.

        ``structure`` is one of :mod:`fairseq_entmax.kernels.structure`. Parameters are numbers, or
        tensors that broadcast against the scores with a last dimension of size 1. Keys of a group
        have the same probability, to the bit. A row with every key masked is all zeros. Any other
        is all NaN if a parameter is NaN, or if a score is NaN or ``+inf``.
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

        Those of parameters are one number per row, to be summed over the rows that share one.
        ``probs`` is what :meth:`probabilities` returned, ``grad`` the gradient with respect to it;
        ``masked`` is true at masked keys, and only needed for the gradient of ``TV``'s strength.
        """


class Losses(Protocol):
    """The alpha-entmax loss of a target (:func:`fairseq_entmax.mappings.entmax_loss_parts`)."""

    def losses(
        self, scores: Tensor, target: Tensor, epsilon: float, smoothing: float
    ) -> tuple[LossParts, tuple[Tensor, ...]]:
        """The losses, without a graph, and what the backward pass needs besides the scores.

        Only torch's backend takes an epsilon of 0.
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
        """The gradient of the scores, ``(..., keys)``, given ``grad`` of the losses, ``(...)``."""
