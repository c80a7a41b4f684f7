"""The mapping in C, on rows of float32 on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from fairseq_entmax.kernels.inputs import epsilon_of_rows
from fairseq_entmax.kernels.native.library import address, check, lanes, library, threads_for


def takes(scores: Tensor) -> bool:
    """Whether the kernel is for such scores: float32 on a CPU."""
    return (
        scores.device.type == "cpu"
        and scores.dtype == torch.float32
        and scores.layout == torch.strided
        and not scores.is_neg()
    )


def probabilities(scores: Tensor, epsilon: float | Tensor) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.Rows.probabilities`."""
    scores = scores.contiguous()
    probs = torch.empty_like(scores)
    _run("forward", scores, epsilon, probs)
    return probs


def gradients(
    probs: Tensor, epsilon: float | Tensor, grad: Tensor, for_scores: bool, for_alpha: bool
) -> tuple[Tensor | None, Tensor | None]:
    """As :meth:`fairseq_entmax.kernels.backends.Rows.gradients`."""
    grad = grad.resolve_neg().contiguous()
    probs = probs.contiguous()
    grad_scores = torch.empty_like(probs) if for_scores else None
    grad_alpha = probs.new_zeros((*probs.shape[:-1], 1)) if for_alpha else None
    _run("backward", probs, epsilon, grad, grad_scores, grad_alpha)
    return grad_scores, grad_alpha


def _run(direction: str, rows: Tensor, epsilon: float | Tensor, *others: Tensor | None) -> None:
    """Call the function of the library for a direction, which takes ``others`` too."""
    keys = rows.size(-1)
    number = rows.numel() // keys if keys else 0
    if number:
        function = getattr(library(), f"entmax_{direction}_f32")
        values, inner, entries = epsilon_of_rows(epsilon, rows, rows.dtype)
        failed = function(
            *(address(rows), address(values), inner, entries),
            *(address(tensor) for tensor in others),
            *(number, keys, _threads(number, keys)),
        )
        check(failed)


def _threads(rows: int, keys: int) -> int:
    return threads_for(rows * keys, -(-rows // lanes()))


def buffer_bytes(scores: Tensor) -> int:
    """The most that the library itself takes, forward or backward, for scripts/benchmarks."""
    keys = scores.size(-1)
    vectors = 6 * (keys + 2 * lanes())  # of a thread
    return _threads(scores.numel() // keys, keys) * vectors * lanes() * scores.element_size()
