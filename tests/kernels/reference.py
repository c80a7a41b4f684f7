"""Attention in float64, for the kernels that compute it as a whole."""

import torch

from fairseq_entmax.kernels import torch_ops
from fairseq_entmax.kernels.dropout import factors
from tests.mappings.reference import bisection


def _alpha_gradient(probs, kept, epsilon, grad):
    """Proposition 1 of Correia et al. 2019 as it stands, for epsilon well above 0."""
    logs = kept.log()
    weights = torch.where(probs > 0, kept ** (1.0 - epsilon), 0.0)
    total = weights.sum(-1, keepdim=True)
    share = weights / torch.where(total == 0, 1.0, total)
    entropy = -(probs * logs).sum(-1, keepdim=True)
    derivative = (probs - share) / epsilon**2 - (probs * logs + share * entropy) / epsilon
    return (derivative * grad).sum(-1, keepdim=True)


class _Mapping(torch.autograd.Function):
    """Alpha-entmax by bisection, and the derivatives that tests/mappings holds to differences."""

    @staticmethod
    def forward(ctx, scores, epsilon):
        probs = bisection(scores, epsilon + 1)
        ctx.save_for_backward(probs, epsilon)
        return probs

    @staticmethod
    def backward(ctx, grad):
        probs, epsilon = ctx.saved_tensors
        # In operations that have a derivative: there p is that of the function again
        support = probs > 0
        kept = torch.where(support, probs, 1.0)
        weights = torch.where(support, kept ** (1.0 - epsilon), probs)
        total = weights.sum(-1, keepdim=True)
        mean = (weights * grad).sum(-1, keepdim=True) / torch.where(total == 0, 1.0, total)
        for_scores = weights * (grad - mean)
        if torch.is_grad_enabled():
            rows = _alpha_gradient(probs, kept, epsilon, grad)
        else:
            rows = torch_ops.alpha_gradient(probs, epsilon, grad)
        return for_scores, rows.sum_to_size(epsilon.shape)


def check_second_derivatives(
    kernel,
    tensors,
    epsilon,
    device="cpu",
    dtype=torch.float32,
    causal=False,
    padding=False,
    mask=False,
    dropout=0.0,
):
    """A penalty on all gradients of a kernel for attention, differentiated, against float64.

    Args:
        kernel: ``attention`` of a module of kernels.
        tensors: query, key, value, and what the output is multiplied with.
        epsilon: number, or tensor of any shape with one number or one for each head, above 0.
        causal, padding, mask: which masks there are.
        dropout: of weights, by a seed.
    """
    *tensors, weights = tensors
    batch, _, queries, _ = tensors[0].shape
    keys = tensors[1].size(2)
    masks = {"causal": causal}
    if padding:
        masks["padding"] = torch.zeros(batch, keys, dtype=torch.bool)
        masks["padding"][0, keys // 2 :] = True
        masks["padding"][-1] = True
    if mask:
        masks["mask"] = torch.randn(queries, keys, generator=torch.Generator().manual_seed(7))
        masks["mask"][2, 1] = -torch.inf
    names = {"padding": "key_padding_mask", "mask": "attn_mask"}
    on_device = {
        names.get(name, name): value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in masks.items()
    }
    if dropout:
        seed = torch.tensor([99])
        on_device |= {"dropout": dropout, "seed": seed}
        sizes = (batch, tensors[0].size(1), queries, keys)
        masks["kept"] = factors(sizes, dropout, seed, torch.device("cpu"))
    learns = isinstance(epsilon, torch.Tensor)
    results = []
    for function, where, used, given in (
        (kernel, device, dtype, on_device),
        (attention, "cpu", torch.float64, masks),
    ):
        leaves = [tensor.to(where, used, copy=True).requires_grad_() for tensor in tensors]
        # One tensor for all heads, so that the reference can take a number too
        alpha = torch.as_tensor(epsilon).to(where, torch.float64 if used == torch.float64 else None)
        alpha = alpha.clone().requires_grad_(learns)
        given_epsilon = alpha if learns or function is attention else epsilon
        if function is attention:
            given_epsilon = given_epsilon.double().reshape(-1)
        output = function(*leaves, given_epsilon, **given).to(torch.float64)
        leaves += [alpha] if learns else []
        loss = (output * weights.to(where, torch.float64)).sum() + output.square().sum()
        gradients = torch.autograd.grad(loss, leaves, create_graph=True)
        penalty = sum(gradient.double().square().sum() for gradient in gradients)
        results.append(torch.autograd.grad(penalty, leaves))
    tolerance = 3e-4 if dtype == torch.float32 else 20 * torch.finfo(dtype).eps
    for result, truth in zip(*results, strict=True):
        assert truth.abs().max() > 0.01
        error = (result.cpu().double() - truth).abs().max()
        assert error <= tolerance * truth.abs().max()


def attention(
    query, key, value, epsilon, padding=None, mask=None, causal=False, scale=1.0, kept=None
):
    """What attention is to compute, written down: ``(batch, heads, positions, head_dim)``.

    Weights are multiplied by ``kept``, ``(batch, heads, queries, keys)``.
    """
    scores = scale * query @ key.mT
    if mask is not None:
        scores = scores + mask.double()
    if padding is not None:
        scores = scores.masked_fill(padding[:, None, None], -torch.inf)
    if causal:
        queries, keys = scores.shape[-2:]
        hidden = torch.ones(queries, keys, dtype=torch.bool).triu(1 + keys - queries)
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = _Mapping.apply(scores, epsilon.view(1, -1, 1, 1))
    return (weights if kept is None else weights * kept.double()) @ value
