"""Attention weights of every head while a model runs."""

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
    """Records the weights of every head of a model, as a context manager.

    While it is open, attention computes its weights apart, so kernels that never hold them
    stand back; the model's results are the same. Afterwards the model is as it was.

        with AttentionRecorder(model) as recorder:
            model(**sample["net_input"])
        recorder.attention["cross"][0]  # (batch, heads, queries, keys)

    Args:
        model: any model of this package; also what ``load_model`` or ``from_pretrained`` gave.
        keep_graph: keep what is needed to differentiate through the weights. Otherwise they
            are detached.

    Attributes:
        attention: ``encoder-self``, ``decoder-self`` and ``cross`` to layer, from 0, to
            weights ``(batch, heads, queries, keys)`` of the last pass, before dropout and
            gates, float32 (float64 for a float64 model), on the model's device. Zero at
            padding, and where the mapping says so. An attention without heads is absent. While
            a model decodes step by step, as ``translate`` does, these are the weights of its last
            step alone: ``look`` gives those of the whole sentence.

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
    """The model itself, where it comes in something around it."""
    models = getattr(model, "models", None)  # of fairseq's interface for its hub
    if models is not None:
        if len(models) != 1:
            raise ValueError(f"attention of one model is recorded, not of {len(models)} together")
        return models[0]
    inner = getattr(model, "model", None)
    return inner if isinstance(inner, nn.Module) else model


def record_attention(model: Any, sample: dict[str, Any]) -> tuple[Attention, Tensor]:
    """One teacher-forced pass over a batch, without gradients.

    Args:
        model: as for :class:`AttentionRecorder`, in evaluation mode.
        sample: a batch as fairseq's data loader makes it.

    Returns:
        The weights of every head, and the logits ``(batch, queries, vocabulary)``; log
        probabilities instead of a model that copies words, and ``(batch, classes)`` of one that
        classifies.
    """
    attention, (logits, _) = record_pass(model, sample)
    return attention, logits


def record_pass(model: Any, sample: dict[str, Any]) -> tuple[Attention, tuple[Tensor, Any]]:
    """As :func:`record_attention`; with all that the model gave, as fairseq has it."""
    with torch.no_grad(), AttentionRecorder(model) as recorder:
        network = unwrapped(model)
        output = type_of_model(network).run(network, sample)
    return recorder.attention, output
