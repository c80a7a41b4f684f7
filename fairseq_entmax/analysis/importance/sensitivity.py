"""The importance of each attention head for the loss, by the gradient at its output.

Multiply the output of head ``h`` by ``xi_h = 1``. The head's importance is how fast the loss of a
sentence changes with ``xi_h``, on average. One forward and one backward pass give it for all heads.

Source: Michel, Levy, Neubig 2019, *Are Sixteen Heads Really Better than One?*, equation of
``I_h``: the mean over sentences of ``|d L / d xi_h|``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from fairseq_entmax.analysis.data.data_types import type_of_model
from fairseq_entmax.analysis.importance import ByHead
from fairseq_entmax.analysis.importance.propagation import restored
from fairseq_entmax.analysis.models.head_scaling import scaled_heads
from fairseq_entmax.analysis.models.likelihood import loss_of_logits, unreachable
from fairseq_entmax.attention import attention_modules
from fairseq_entmax.models.base import ModelWithHeads


def head_sensitivity(model: ModelWithHeads, sample: dict[str, Any]) -> ByHead:
    """Compute how fast the loss of each sentence changes with a factor on the output of each head.

    A sentence's loss is its mean negative log likelihood per target token, end of sentence
    included: natural logarithm, no label smoothing, no dropout. (With a sparse output, it is the
    mean Fenchel-Young loss.) A head's importance on a data set is the mean of the result over
    sentences. If a model copies words, the likelihood is that of the mixture, targets that it
    cannot reach are left out, and a copy head's factor is only on what it adds to the decoder.

    Args:
        model: the model, run in evaluation mode. Its mode, its gradients and its
            ``requires_grad`` are left as they were.
        sample: a batch with targets as fairseq's collater makes it, on the model's device.

    Returns:
        Attention to layer to ``(batch, heads)``, 0 or more, in nats, float32 (float64 for a
        float64 model). A pruned attention may have 0 heads.

    Raises:
        ValueError: the model has an adaptive softmax, whose likelihoods fairseq computes
            without a gradient.
    """
    check_gradient(model)
    parameter = next(model.parameters())
    dtype = torch.promote_types(parameter.dtype, torch.float32)
    factors: ByHead = {}
    with _with_gradients_of_factors(model), contextlib.ExitStack() as stack:
        for attention, number, module in attention_modules(model):
            shape = len(sample["target"]), module.num_heads
            factor = torch.ones(shape, dtype=dtype, device=parameter.device, requires_grad=True)
            factors.setdefault(attention, {})[number] = factor
            if module.num_heads:
                stack.enter_context(scaled_heads(module, factor))
        data_type = type_of_model(model)
        logits, _ = data_type.run(model, sample)
        target, counts = data_type.targets(model, sample)
        each = loss_of_logits(logits, target, counts, getattr(model, "output_alpha", 1.0))
        gone = unreachable(each, model)
        size = len(target)
        counted = (counts & ~gone).view(size, -1).sum(dim=1)
        losses = each.masked_fill(gone, 0.0).view(size, -1).sum(dim=1) / counted.clamp(min=1)
        # The gradient of a sum, since no sentence depends on the factors of another. A model
        # without any head left has no factor.
        if losses.requires_grad:
            losses.sum().backward()
    # Heads on which the loss does not depend have no gradient: the encoder's without
    # cross-attention
    return {
        attention: {
            number: torch.zeros_like(one) if one.grad is None else one.grad.abs()
            for number, one in layers.items()
        }
        for attention, layers in factors.items()
    }


@contextlib.contextmanager
def _with_gradients_of_factors(model: ModelWithHeads) -> Iterator[None]:
    # With --checkpoint-activations a layer that recomputes its activations gets a gradient only if
    # its input has one, and here the first layer's input has none
    recomputed: list[Any] = [m for m in model.modules() if hasattr(m, "precheckpoint_forward")]
    with (
        restored(model.modules(), "training"),
        restored(model.parameters(), "requires_grad"),
        restored(recomputed, "forward"),
        torch.enable_grad(),
    ):
        model.eval().requires_grad_(False)
        for layer in recomputed:
            layer.forward = layer.precheckpoint_forward
        yield


def check_gradient(model: Any) -> None:
    """Refuse models without a gradient of the loss."""
    decoder = getattr(model, "decoder", None)
    if getattr(decoder, "adaptive_softmax", None) is not None:
        raise ValueError(
            "there is no gradient of the loss through a model with --adaptive-softmax-cutoff: "
            "leave the gradient out of the measures"
        )
