"""What a backend offers. The functions are those of a module: nothing is kept between calls.

All are written in ``epsilon = alpha - 1`` (see :mod:`fairseq_entmax.kernels.torch_ops`): a number,
the same for all rows, or a tensor, which may hold NaN.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


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
    """Alpha-entmax along the last dimension, and its gradients: what every backend has."""

    def takes(self, scores: Tensor) -> bool:
        """Whether the backend is for scores of this device, dtype and layout."""

    def probabilities(self, scores: Tensor, epsilon: float | Tensor) -> Tensor:
        """Map scores to probabilities.

        Args:
            scores: ``(..., keys)``; ``-inf`` marks a masked key.
            epsilon: number or tensor in [0, 1], or NaN; a tensor broadcasts against the scores,
                with a last dimension of size 1.

        Returns:
            ``(..., keys)``. A row with every key masked is all zeros; any other whose epsilon is
            NaN, or that has NaN or ``+inf`` among its scores, is all NaN.
        """

    def gradients(
        self,
        probs: Tensor,
        epsilon: float | Tensor,
        grad: Tensor,
        for_scores: bool,
        for_alpha: bool,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Gradients with respect to the scores and to alpha.

        Args:
            probs: ``(..., keys)``, what :meth:`probabilities` returned.
            epsilon: as given there.
            grad: ``(..., keys)``, gradient with respect to ``probs``, of the same dtype.
            for_scores, for_alpha: which are wanted.

        Returns:
            ``(..., keys)``, and ``(..., 1)``, a number for each row, to be summed over the rows
            that share an alpha; None for what is not wanted.
        """


class StructuredRows(Protocol):
    """Mappings with structure along the last dimension, and their gradients.

    Parameters are those of :class:`fairseq_entmax.kernels.structure.Structure`. Each may be a
    number, or a tensor that broadcasts against the scores with a last dimension of size 1.
    """

    def takes(self, scores: Tensor, kind: str) -> bool:
        """Whether the backend is for this kind on scores of this device, dtype and layout."""

    def probabilities(
        self, scores: Tensor, kind: str, epsilon: float | Tensor, strength: float | Tensor
    ) -> Tensor:
        """Map scores to probabilities.

        Args:
            scores: ``(..., keys)``; ``-inf`` marks a masked key, which is as if it was not there,
                but that it parts its neighbours.
            kind, epsilon, strength: what is computed.

        Returns:
            ``(..., keys)``; keys of a group have the same number, to the bit. A row with every key
            masked is all zeros; any other that has a NaN parameter, or NaN or ``+inf`` among its
            scores, is all NaN.
        """

    def gradients(
        self,
        probs: Tensor,
        kind: str,
        epsilon: float | Tensor,
        strength: float | Tensor,
        masked: Tensor | None,
        grad: Tensor,
        wanted: tuple[bool, bool, bool],
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Gradients with respect to the scores, to epsilon and to the strength.

        Args:
            probs: ``(..., keys)``, what :meth:`probabilities` returned.
            kind, epsilon, strength: as given there.
            masked: ``(..., keys)``, bool, true at masked keys; None where there are none. Only
                needed where :data:`~fairseq_entmax.kernels.structure.TV` wants the gradient of its
                strength.
            grad: ``(..., keys)``, gradient with respect to ``probs``, of the same dtype.
            wanted: which of the three.

        Returns:
            ``(..., keys)``, ``(..., 1)`` and ``(..., 1)``: a number for each row, to be summed
            over the rows that share a parameter. None for what is not wanted.
        """


class Losses(Protocol):
    """The loss of alpha-entmax of a target, and its gradient.

    See :func:`fairseq_entmax.mappings.losses.entmax_loss_parts` for what they are.
    """

    def takes(self, scores: Tensor) -> bool:
        """Whether the backend is for scores of this device, dtype and layout."""

    def losses(
        self, scores: Tensor, target: Tensor, epsilon: float, smoothing: float
    ) -> tuple[LossParts, tuple[Tensor, ...]]:
        """The losses, without a graph.

        Args:
            scores: ``(..., keys)``; ``-inf`` marks a masked key.
            target: ``(...)``, int64, from 0 to keys - 1.
            epsilon: alpha - 1, in [0, 1]; torch's alone takes 0.
            smoothing: of the labels, from 0 to below 1.

        Returns:
            The parts, and what the backward pass of this backend needs beside the scores.
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
        """The gradient of the scores, ``(..., keys)``, for one of the losses, ``(...)``.

        Args:
            scores, target, epsilon, smoothing: as given to :meth:`losses`.
            saved: what it returned.
            grad: ``(...)``, gradient with respect to the losses.
        """
