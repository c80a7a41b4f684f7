"""Propagate relevance back through a whole model, from logits to the inputs of the first layers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax.analysis.importance import ByHead, rules
from fairseq_entmax.attention import MultiheadAttention, attention_modules
from fairseq_entmax.attentions import CROSS, DECODER_SELF, ENCODER_SELF


def layers_of(stack: Any) -> list[Any]:
    """The layers of an encoder or decoder, bottom first."""
    # Not ``list(stack.layers)``: with LayerDrop, iterating drops some layers at random
    return list(stack.layers.children())


def watched_modules(model: Any) -> Iterator[nn.Module]:
    """Yield the modules whose inputs and outputs :class:`Propagation` needs."""
    encoder, decoder = getattr(model, "encoder", None), model.decoder
    for _, _, attention in attention_modules(model):
        if attention.mapping is not None:
            yield from (attention.q_proj, attention.v_proj, attention.out_proj, attention.mapping)
    for layer in (layers_of(encoder) if encoder is not None else []) + layers_of(decoder):
        yield from (layer.self_attn_layer_norm, layer.fc1, layer.fc2, layer.final_layer_norm)
        if getattr(layer, "encoder_attn", None) is not None:
            yield layer.encoder_attn_layer_norm
    last = (getattr(encoder, "layer_norm", None), decoder.layer_norm, decoder.project_out_dim)
    yield from (module for module in last if module is not None)
    yield decoder.output_projection


class Propagation:
    """Relevance to the predictions at some target positions, ``(predictions,)``, of one sentence.

    ``heads``: attention to layer to ``(predictions, heads)``. ``totals``: boundary to
    ``(predictions,)``."""

    def __init__(
        self, model: Any, activations: Activations, source_length: int, positions: Tensor
    ) -> None:
        self._input, self._output = activations.input, activations.output
        self.heads: ByHead = {attention: {} for attention in (ENCODER_SELF, DECODER_SELF, CROSS)}
        self.totals: dict[str, Tensor] = {}
        # Relevance in the streams of decoder and encoder, (predictions, length, width)
        self._decoder = self._from_logits(model.decoder, positions)
        encoder = getattr(model, "encoder", None)
        width = 0 if encoder is None else model.cfg.encoder.embed_dim
        self._encoder = self._decoder.new_zeros(len(positions), source_length, width)
        self._note_total("decoder output")
        for number, layer in reversed(list(enumerate(layers_of(model.decoder)))):
            relevance = self._through_feed_forward(layer, self._decoder)
            if layer.encoder_attn is not None:
                relevance, branch = self._through_attention(CROSS, number, layer, relevance)
                self._encoder = self._encoder + branch
            self._decoder = self._through_self_attention(DECODER_SELF, number, layer, relevance)
            self._note_total(f"decoder layer {number} input")
        if encoder is not None:
            self._through_encoder(encoder)

    def _through_encoder(self, encoder: Any) -> None:
        if encoder.layer_norm is not None:
            self._encoder = self._through_norm(encoder.layer_norm, self._encoder)
        self._note_total("encoder output")
        for number, layer in reversed(list(enumerate(layers_of(encoder)))):
            relevance = self._through_feed_forward(layer, self._encoder)
            self._encoder = self._through_self_attention(ENCODER_SELF, number, layer, relevance)
            self._note_total(f"encoder layer {number} input")

    def _note_total(self, boundary: str) -> None:
        self.totals[boundary] = self._decoder.sum(dim=(1, 2)) + self._encoder.sum(dim=(1, 2))

    def _from_logits(self, decoder: Any, positions: Tensor) -> Tensor:
        """Start at the top-1 logit of each position; return relevance of the top layer's output."""
        projection = decoder.output_projection
        features = self._input(projection)
        words = self._output(projection)[positions].argmax(dim=-1)
        start = rules.logit(features[positions], precise(projection.weight[words]))
        # A decoder does not see later positions, so none after the last has relevance
        length = int(positions.max()) + 1
        relevance = start.new_zeros(len(positions), length, features.size(1))
        relevance[torch.arange(len(positions), device=positions.device), positions] = start
        if decoder.project_out_dim is not None:
            relevance = self._through_linear(decoder.project_out_dim, relevance)
        if decoder.layer_norm is not None:
            relevance = self._through_norm(decoder.layer_norm, relevance)
        return relevance

    def _through_feed_forward(self, layer: Any, relevance: Tensor) -> Tensor:
        norm, is_before = layer.final_layer_norm, layer.normalize_before
        if not is_before:
            relevance = self._through_norm(norm, relevance)
        residual = self._input(norm if is_before else layer.fc1)
        in_stream, added = self._parted(relevance, residual, layer.fc2)
        branch = self._through_linear(layer.fc1, self._through_linear(layer.fc2, added))
        return in_stream + (self._through_norm(norm, branch) if is_before else branch)

    def _through_self_attention(
        self, attention: str, number: int, layer: Any, relevance: Tensor
    ) -> Tensor:
        in_stream, branch = self._through_attention(attention, number, layer, relevance)
        if layer.normalize_before and layer.self_attn.mapping is not None:
            branch = self._through_norm(layer.self_attn_layer_norm, branch)
        return in_stream + branch

    def _through_attention(
        self, name: str, number: int, layer: Any, relevance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the relevance of the residual connection, and of the inputs of the values."""
        place = "encoder_attn" if name == CROSS else "self_attn"
        attention: MultiheadAttention = getattr(layer, place)
        norm = getattr(layer, f"{place}_layer_norm")
        if not layer.normalize_before:
            relevance = self._through_norm(norm, relevance)
        if attention.mapping is None:
            self.heads[name][number] = relevance.new_zeros(len(relevance), 0)
            return relevance, relevance.new_zeros(())
        residual = self._input(norm if layer.normalize_before else attention.q_proj)
        in_stream, added = self._parted(relevance, residual, attention.out_proj)
        heads = self._through_linear(attention.out_proj, added)
        # (predictions, queries, heads, head_dim)
        heads = heads.unflatten(-1, (attention.num_heads, -1))
        self.heads[name][number] = heads.sum(dim=(1, 3))
        values = self._output(attention.v_proj).unflatten(-1, (attention.num_heads, -1))
        if name == DECODER_SELF:
            values = values[: relevance.size(1)]
        # (heads, queries, keys)
        weights = self._output(attention.mapping)[:, : relevance.size(1), : len(values)]
        of_values = rules.weighted_sum(heads, weights, values)
        return in_stream, self._through_linear(attention.v_proj, of_values.flatten(2))

    def _parted(
        self, relevance: Tensor, residual: Tensor, projection: nn.Linear
    ) -> tuple[Tensor, Tensor]:
        """Split relevance between a residual connection and its branch; bias alone counts as 0."""
        length = relevance.size(1)
        outputs, inputs = self._output(projection)[:length], self._input(projection)[:length]
        added = rules.made_by_inputs(outputs, inputs, precise(projection.weight))
        return rules.residual(relevance, residual[:length], added)

    def _through_linear(self, layer: nn.Linear, relevance: Tensor) -> Tensor:
        inputs = self._input(layer)[: relevance.size(1)]
        return rules.linear(relevance, inputs, precise(layer.weight))

    def _through_norm(self, norm: nn.Module, relevance: Tensor) -> Tensor:
        return rules.layer_norm(relevance, self._input(norm)[: relevance.size(1)])


@contextlib.contextmanager
def restored(things: Iterable[Any], attribute: str) -> Iterator[None]:
    """Restore an attribute of each of ``things`` after a block that sets it."""
    before = [(thing, getattr(thing, attribute)) for thing in things]
    try:
        yield
    finally:
        for thing, value in before:
            setattr(thing, attribute, value)


def precise(tensor: Tensor) -> Tensor:
    """Return the tensor without gradient, in float32, or in float64 if it is float64."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))


class Activations:
    """Keeps the first input and the output of each module's last call, on one sentence."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._modules = list(modules)
        self._hooks: list[Any] = []
        self._seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def __enter__(self) -> Activations:
        self._hooks = [module.register_forward_hook(self._see) for module in self._modules]
        return self

    def __exit__(self, *error: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _see(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        self._seen[module] = args[0], output

    def input(self, module: nn.Module) -> Tensor:
        """Return a module's input without the sentence dimension, in float32 (float64 stays)."""
        return precise(self._seen[module][0]).flatten(0, 1)

    def output(self, module: nn.Module) -> Tensor:
        """Return a module's output in the same form."""
        return precise(self._seen[module][1]).flatten(0, 1)
