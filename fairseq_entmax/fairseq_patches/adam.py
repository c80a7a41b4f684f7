"""Computes Adam and the norm of the gradients for all parameters at once, not one by one.

Unless NVIDIA's apex is installed, fairseq's Adam takes seven operations per parameter, and the norm
one more. For a small model on a GPU, these are more launches than the model itself needs. The
formulas and their order are fairseq's; on a CPU the results are the same to the bit.

Without it: training in float32 on a GPU without apex is slower, most of all for small models.
Remove when: fairseq uses torch's operations on lists here, too.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

HALF = torch.float16, torch.bfloat16


@torch.no_grad()
def step_at_once(step: Callable[..., Any], optimizer: Any, closure: Any = None) -> Any:
    """``Adam.step``; fairseq's for the first update, AMSGrad, half precision, sparse gradients."""
    for group in optimizer.param_groups:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        if group.get("amsgrad") or any(not _is_plain(optimizer, one) for one in parameters):
            return step(optimizer, closure)
    with torch.enable_grad():
        loss = closure() if closure else None
    for group in optimizer.param_groups:
        by_step: dict[int, list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.grad is not None:
                by_step.setdefault(optimizer.state[parameter]["step"] + 1, []).append(parameter)
        for number, parameters in by_step.items():
            _move(optimizer, group, number, parameters)
    return loss


def _is_plain(optimizer: Any, parameter: Tensor) -> bool:
    state, gradient = optimizer.state[parameter], parameter.grad
    return (
        bool(state)
        and not (gradient is None or gradient.is_sparse or gradient.dtype in HALF)
        and state["exp_avg"].device == parameter.device
        and state["exp_avg"].dtype == parameter.dtype == gradient.dtype
    )


def _move(optimizer: Any, group: Any, number: int, parameters: list[Tensor]) -> None:
    states = [optimizer.state[parameter] for parameter in parameters]
    gradients: list[Any] = [parameter.grad for parameter in parameters]
    means = [state["exp_avg"] for state in states]
    squares = [state["exp_avg_sq"] for state in states]
    beta1, beta2 = group["betas"]
    for state in states:
        state["step"] = number
    torch._foreach_mul_(means, beta1)
    torch._foreach_add_(means, gradients, alpha=1 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
    scales = torch._foreach_sqrt(squares)
    torch._foreach_add_(scales, group["eps"])
    if group["weight_decay"] != 0:
        torch._foreach_add_(parameters, parameters, alpha=-group["weight_decay"] * group["lr"])
    size = group["lr"] * math.sqrt(1 - beta2**number) / (1 - beta1**number)
    torch._foreach_addcdiv_(parameters, means, scales, value=-size)


def norm_at_once(_: Callable[..., Tensor], gradients: list[Tensor], *__: Any) -> Tensor:
    """The norm of all gradients together, in float32, on the first gradient's device."""
    norms = torch._foreach_norm(gradients, 2, dtype=torch.float32)
    return torch.norm(torch.stack([norm.to(norms[0].device) for norm in norms]))
