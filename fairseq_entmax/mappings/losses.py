"""The Fenchel-Young loss of alpha-entmax: of a target among the keys, and of other probabilities.

Source: Blondel, Martins and Niculae 2020, *Learning with Fenchel-Young Losses*, section 4; for
alpha-entmax Peters, Niculae and Martins 2019, *Sparse Sequence-to-Sequence Models*, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax import kernels
from fairseq_entmax.kernels import torch_losses
from fairseq_entmax.kernels.backends import LossParts
from fairseq_entmax.kernels.operators import (
    Differentiable,
    Operator,
    as_arguments,
    fake_gradient,
    followed,
    is_plain,
    samples_first,
)
from fairseq_entmax.mappings.functional import check_alpha, check_dim, map_scores


def entmax_loss(scores: Tensor, target: Tensor, alpha: float = 1.5) -> Tensor:
    """The alpha-entmax loss of each row: cross-entropy where alpha is 1.

        L = (p - q) z + H(p),    with the gradient p - q of the scores z

    p is alpha-entmax of the scores, q is 1 at the target and 0 elsewhere, H is Tsallis'
    alpha-entropy. Above alpha = 1 the loss is 0 where the target's score is above all others by
    1 / (alpha - 1), and keys outside the support, the target apart, have no gradient.

    Args:
        scores: ``(…, keys)``, floating point; -inf masks a key. float16 and bfloat16 are computed
            in float32.
        target: ``(…)``, int64, from 0 to keys - 1. Outside, torch stops the program on a GPU.
        alpha: a number from 1 to 2. It has no gradient: losses of different alpha are not to be
            compared.

    Returns:
        ``(…)``, in float32, or float64 where the scores are; 0 or more. A masked target costs
        +inf. A row with NaN or +inf among its scores is NaN, and so is its gradient. Differentiable
        in the scores to any order.

    Raises:
        ValueError: ``scores`` is not floating point, ``target`` is not int64, of another shape or
            device, or out of range; ``alpha`` is out of range, or a tensor that requires a
            gradient, stands for many in :func:`torch.vmap` or has not just one number.

    Source:
        Peters, Niculae and Martins 2019, *Sparse Sequence-to-Sequence Models*, section 3.
    """
    return entmax_loss_parts(scores, target, alpha).loss


def sparsemax_loss(scores: Tensor, target: Tensor) -> Tensor:
    """The sparsemax loss (Martins and Astudillo 2016): :func:`entmax_loss` with alpha = 2."""
    return entmax_loss(scores, target, 2.0)


def entmax15_loss(scores: Tensor, target: Tensor) -> Tensor:
    """The 1.5-entmax loss (Peters et al. 2019): :func:`entmax_loss` with alpha = 1.5."""
    return entmax_loss(scores, target, 1.5)


def entmax_loss_parts(
    scores: Tensor, target: Tensor, alpha: float = 1.5, label_smoothing: float = 0.0
) -> LossParts:
    """:func:`entmax_loss` with label smoothing, and what a criterion reports of it.

    With smoothing, q is 1 - label_smoothing at the target and label_smoothing / (V - 1) at each
    other of the V keys that are not masked (Peters and Martins 2021, *Smoothing and Shrinking the
    Sparse Seq2Seq Search Space*). The loss then is (p - q) z + H(p), the Fenchel-Young loss but
    for H(q), which does not depend on the scores: at alpha = 1 it is fairseq's label-smoothed
    cross-entropy.

    Args:
        scores, target, alpha: as of :func:`entmax_loss`.
        label_smoothing: from 0 to below 1.

    Raises:
        ValueError: as :func:`entmax_loss`; ``label_smoothing`` is out of range.
    """
    check_dim(scores, -1)
    alpha = check_alpha(_as_number(alpha))
    _check_smoothing(label_smoothing)
    _check_target(scores, target)
    wide = scores.to(torch.float64 if scores.dtype == torch.float64 else torch.float32)
    return LossParts(*LOSS(wide, target, alpha, label_smoothing)[:3])


def _as_number(alpha: Any) -> Any:
    """What :func:`check_alpha` can read: a tensor only where it is one number and no more."""
    if not isinstance(alpha, Tensor):
        return alpha
    if alpha.requires_grad and torch.is_grad_enabled():
        kind = "a tensor that requires a gradient"
    elif not is_plain(alpha) and not torch.compiler.is_compiling():
        kind = "a tensor that is traced or transformed"
    elif alpha.numel() != 1:
        kind = f"a tensor of shape {tuple(alpha.shape)}"
    else:
        return alpha.detach()
    raise ValueError(
        f"alpha must be a number, as the loss has no gradient for it, not {kind}: give a float"
    )


def _check_smoothing(label_smoothing: float) -> None:
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"label_smoothing must be from 0 to below 1, not {label_smoothing}")


def _check_target(scores: Tensor, target: Tensor) -> None:
    if not isinstance(target, Tensor) or target.dtype != torch.int64:
        kind = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(f"target must be a tensor of torch.int64, not {kind}")
    if target.shape != scores.shape[:-1]:
        raise ValueError(
            f"target must be of shape {tuple(scores.shape[:-1])}, that of the scores without "
            f"their keys, not {tuple(target.shape)}"
        )
    if target.device != scores.device:
        raise ValueError(f"target must be on {scores.device} as scores is, not {target.device}")
    if target.numel() > 0 and scores.size(-1) == 0:
        raise ValueError(f"scores must have a key for each target, not {tuple(scores.shape)}")


def _check_targets(target: Tensor, keys: int) -> None:
    # On other devices a look at the values would wait for them
    if target.device.type == "cpu" and target.numel() > 0:
        for index in torch.aminmax(target):
            if not 0 <= index.item() < keys:
                raise ValueError(
                    f"target must be from 0 to {keys - 1}, one of the {keys} keys, not "
                    f"{index.item()}"
                )


def _losses(scores: Tensor, target: Tensor, alpha: float, smoothing: float) -> tuple[Any, ...]:
    """The three parts; behind them what this backend wants back for the gradient, and itself."""
    # Here, where there are numbers whatever traces or transforms: kernels read what is at a target
    _check_targets(target, scores.size(-1))
    backend = kernels.losses_for(scores, alpha - 1.0)
    parts, saved = backend.losses(scores, target, alpha - 1.0, smoothing)
    return *parts, saved, backend


def _gradients(
    scores: Tensor, target: Tensor, alpha: float, smoothing: float, grad: Tensor
) -> Tensor:
    """Where what the losses were made of is not at hand: they are computed anew."""
    *_, saved, backend = _losses(scores, target, alpha, smoothing)
    found: Tensor = backend.gradients(scores, target, alpha - 1.0, smoothing, saved, grad)
    return found


def _followed_gradients(
    scores: Tensor, target: Tensor, alpha: float, smoothing: float, grad: Tensor
) -> Tensor:
    """As :func:`_gradients`, in operations that autograd follows."""
    wanted = _target_probs(scores.detach(), target[..., None], smoothing)
    return grad[..., None] * (map_scores(scores, alpha) - wanted)


class _EntmaxLoss(Differentiable):
    """Of float32 or float64, keys last."""

    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[..., tuple[Any, ...]],
        scores: Tensor,
        target: Tensor,
        alpha: float,
        smoothing: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        loss, support, target_prob, *behind = compute(scores, target, alpha, smoothing)
        saved, ctx.backend = behind or ((), None)
        ctx.save_for_backward(scores, target, *saved)
        ctx.alpha, ctx.smoothing = alpha, smoothing
        ctx.mark_non_differentiable(support, target_prob)
        return loss, support, target_prob

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        scores, target, *saved = ctx.saved_tensors
        if ctx.backend is not None and not torch.is_grad_enabled() and is_plain(grad, *saved):
            numbers = (ctx.alpha - 1.0, ctx.smoothing)
            found = ctx.backend.gradients(scores, target, *numbers, tuple(saved), grad)
        else:
            found = LOSS_GRADIENTS(scores, target, ctx.alpha, ctx.smoothing, grad)
        return None, found, None, None, None


def _differentiated(compute: Callable[..., Any], *arguments: Any) -> Any:
    return _EntmaxLoss.apply(compute, *arguments)


def _fake_losses(
    scores: Tensor, target: Tensor, alpha: float, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    loss = scores.new_empty(target.shape)
    return loss, fake_gradient(target, True, target), torch.empty_like(loss)


LOSS: Operator = Operator(
    "entmax_loss",
    "(Tensor scores, Tensor target, float alpha, float smoothing) -> (Tensor, Tensor, Tensor)",
    _losses,
    fake=_fake_losses,
    batched=lambda size, dims, *arguments: (
        LOSS(*samples_first(size, dims, arguments))[:3],
        (0, 0, 0),
    ),
    differentiate=_differentiated,
)
LOSS_GRADIENTS: Operator = Operator(
    "entmax_loss_gradients",
    "(Tensor scores, Tensor target, float alpha, float smoothing, Tensor grad) -> Tensor",
    _gradients,
    fake=lambda scores, *others: fake_gradient(scores, True, scores),
    batched=lambda size, dims, *arguments: (
        LOSS_GRADIENTS(*samples_first(size, dims, arguments)),
        0,
    ),
    differentiate=followed(_followed_gradients),
    of_old_vmap=_followed_gradients,
)


def _target_probs(scores: Tensor, at_target: Tensor, smoothing: float) -> Tensor:
    """q: ``(…, keys)``, of the dtype of the scores."""
    own, other, is_masked = torch_losses.shares(scores, smoothing)
    return torch.where(is_masked, 0.0, other).scatter(-1, at_target, own)


def fenchel_young_loss(
    scores: Tensor, probs: Tensor, target: Tensor, alpha: float | Tensor
) -> Tensor:
    """How far alpha-entmax of some scores is from other probabilities: 0 where they are equal.

        L = (p - q) z + H(p) - H(q),    with the gradient p - q of the scores z

    H is Tsallis' alpha-entropy, (1 - sum p^alpha) / (alpha (alpha - 1)), and Shannon's at alpha =
    1, where the loss is the Kullback-Leibler divergence of q from p. A key outside the support
    of p, which the gradient of the mapping itself never reaches, has a gradient here.

    Args:
        scores: ``(…, keys)``; -inf at keys that are masked, where both probabilities are 0.
        probs: the same shape, p, alpha-entmax of the scores.
        target: the same shape, q, probabilities.
        alpha: from 1 to 2, a number or a tensor that broadcasts to ``(…,)``. It gets no
            gradient: losses of different alpha are not to be compared.

    Returns:
        ``(…,)``, 0 or more, with gradients of ``scores`` alone.
    """
    loss: Tensor = FENCHEL_YOUNG(scores, probs.detach(), target.detach(), *as_arguments(alpha))
    return loss


def _fenchel_young(
    scores: Tensor, probs: Tensor, target: Tensor, alpha: Tensor | None, number: float
) -> Tensor:
    difference = probs - target
    finite = scores.masked_fill(difference == 0, 0.0)
    linear = (difference * finite).sum(-1)
    order = number if alpha is None else alpha
    return (linear + _entropy(probs, order) - _entropy(target, order)).clamp(min=0)


class _FenchelYoung(Differentiable):
    @staticmethod
    def forward(ctx: Any, compute: Callable[..., Tensor], *arguments: Any) -> Tensor:
        *tensors, ctx.number = arguments
        ctx.save_for_backward(*tensors)
        return compute(*arguments)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        found = FENCHEL_YOUNG_GRADIENTS(*ctx.saved_tensors, ctx.number, grad)
        return None, found, None, None, None, None


def _followed_fenchel_young(
    scores: Tensor,
    probs: Tensor,
    target: Tensor,
    alpha: Tensor | None,
    number: float,
    grad: Tensor,
) -> Tensor:
    """In operations that autograd follows: the probabilities given have no history."""
    order: float | Tensor = number if alpha is None else alpha[..., None]
    return grad[..., None] * (map_scores(scores, order).to(probs.dtype) - target)


def _fenchel_young_of_samples(
    size: int, dims: tuple[int | None, ...], *arguments: Any
) -> tuple[Tensor, int]:
    operator = FENCHEL_YOUNG if len(arguments) == 5 else FENCHEL_YOUNG_GRADIENTS
    given = samples_first(size, dims, arguments)
    if given[3] is not None:  # it broadcasts from the right, behind the samples
        own = given[3].shape[1:]
        given[3] = given[3].reshape(size, *[1] * (given[0].dim() - 2 - len(own)), *own)
    result: Tensor = operator(*given)
    return result, 0


_OF_TWO = "Tensor scores, Tensor probs, Tensor target, Tensor? alpha, float number"

FENCHEL_YOUNG = Operator(
    "fenchel_young_loss",
    f"({_OF_TWO}) -> Tensor",
    _fenchel_young,
    fake=lambda scores, *others: scores.new_empty(scores.shape[:-1]),
    batched=_fenchel_young_of_samples,
    differentiate=lambda compute, *arguments: _FenchelYoung.apply(compute, *arguments),
)
FENCHEL_YOUNG_GRADIENTS = Operator(
    "fenchel_young_loss_gradients",
    f"({_OF_TWO}, Tensor grad) -> Tensor",
    lambda scores, probs, target, alpha, number, grad: grad[..., None] * (probs - target),
    fake=lambda scores, *others: fake_gradient(scores, True, scores),
    batched=_fenchel_young_of_samples,
    differentiate=followed(_followed_fenchel_young),
    of_old_vmap=_followed_fenchel_young,
)


def _entropy(probs: Tensor, alpha: float | Tensor) -> Tensor:
    """Tsallis' alpha-entropy of the last dimension, from differences that keep their digits."""
    logs = torch.where(probs > 0, probs, 1.0).log()
    power = torch.as_tensor(alpha, dtype=probs.dtype, device=probs.device)[..., None] - 1
    safe = torch.where(power == 0, 1.0, power)
    # p - p^alpha, and its limit p log p
    terms = torch.where(power == 0, -logs, -torch.expm1(safe * logs) / (safe * (1 + safe)))
    return (probs * terms).sum(-1)
