"""Record the attention weights of every head while a model runs."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention
from torch import Tensor, nn

from fairseq_entmax.analysis.data.data_types import type_of_model
from fairseq_entmax.attention import MultiheadAttention, attention_modules

Attention = dict[str, dict[int, Tensor]]


class AttentionRecorder:
    """A context manager that records the attention weights of every head of a model.

    While it is open, attention computes its weights explicitly instead of in kernels that never
    hold them; the model's results are the same. Closing it restores the model.

        with AttentionRecorder(model) as recorder:
            model(**sample["net_input"])
        recorder.attention["cross"][0]  # (batch, heads, queries, keys)

    Args:
        model: any model of this package, or the result of ``load_model`` or ``from_pretrained``.
        keep_graph: allow differentiating through the weights; otherwise they are detached.

    Attributes:
        attention: maps ``encoder-self``, ``decoder-self`` and ``cross`` to layers, from 0, and
            these to weights ``(batch, heads, queries, keys)`` of the last pass, before dropout and
            gates, float32 (float64 for a float64 model), on the model's device. They are zero at
            padding, and where the mapping gives zeros. An attention without heads is absent. While
            a model decodes step by step, as ``translate`` does, these are the weights of the last
            step only; ``look`` gives those of the whole sentence.

    Raises:
        ValueError: the model has no attention of this package, or is an ensemble.
    """

    def __init__(self, model: Any, keep_graph: bool = False):
        self._model = unwrapped(model)
        self._keep_graph = keep_graph
        self._open = ExitStack()
        self.attention: Attention = {}
        modules = list(self._model.modules())
        if not any(isinstance(module, MultiheadAttention) for module in modules):
            is_stock = any(isinstance(module, FairseqMultiheadAttention) for module in modules)
            remedy = ": load its checkpoint with fairseq_entmax.analysis.load_model" * is_stock
            raise ValueError(
                f"{type(self._model).__name__} has no attention whose weights could be recorded{remedy}"
            )

    def __enter__(self) -> AttentionRecorder:
        self.attention = {}
        for attention, layer, module in attention_modules(self._model):
            record = partial(self._record, attention, layer)
            self._open.enter_context(module.observed(record))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def _record(self, attention: str, layer: int, weights: Tensor) -> None:
        recorded = weights if self._keep_graph else weights.detach()
        self.attention.setdefault(attention, {})[layer] = recorded


def unwrapped(model: Any) -> nn.Module:
    """Return the model, taken out of fairseq's hub interface or another wrapper."""
    models = getattr(model, "models", None)  # of fairseq's hub interface
    if models is not None:
        if len(models) != 1:
            raise ValueError(f"attention is recorded for one model, not for {len(models)} at once")
        return models[0]
    inner = getattr(model, "model", None)
    return inner if isinstance(inner, nn.Module) else model


def record_attention(model: Any, sample: dict[str, Any]) -> tuple[Attention, Tensor]:
    """Run one teacher-forced pass over a batch, without gradients.

    Args:
        model: as for :class:`AttentionRecorder`, in evaluation mode.
        sample: a batch as fairseq's data loader makes it.

    Returns:
        The weights of every head, and the logits ``(batch, queries, vocabulary)``. A model that
        copies words gives log probabilities instead; a classifier gives ``(batch, classes)``.
    """
    attention, (logits, _) = record_pass(model, sample)
    return attention, logits


def record_pass(model: Any, sample: dict[str, Any]) -> tuple[Attention, tuple[Tensor, Any]]:
    """The same as :func:`record_attention`, with the model's whole output in fairseq's form."""
    network = unwrapped(model)
    if getattr(getattr(network, "decoder", None), "cross_self_attention", False):
        raise ValueError(
            "with --cross-self-attention, the decoder's heads read source and target at once, so "
            "there are no measures or maps of them: only ablate and prune take such a model"
        )
    with torch.no_grad(), AttentionRecorder(model) as recorder:
        output = type_of_model(network).run(network, sample)
    return recorder.attention, output
