"""Relevance propagation by its definition: every step is a dense matrix of contributions.

It does not use the package's rules. Each tensor of the network is a row of units, and each unit is
a sum of contributions from earlier units and a bias. The forward pass records these contributions,
and relevance flows back through the record in proportion to their absolute values.
"""

import math

import numpy as np
import torch

from fairseq_entmax.attentions import CROSS, DECODER_SELF, ENCODER_SELF


class Units:
    """A tensor ``(positions, width)`` and the sources of its units.

    ``sources`` are pairs of earlier units and a matrix ``(own units, their units)``.
    """

    def __init__(self, values, sources=()):
        self.values = np.asarray(values)
        self.sources = list(sources)
        self.relevance = np.zeros(self.values.size)


class Reference:
    """One sentence through a model of this package, in float64."""

    def __init__(self, model, source, previous):
        self.tape, self.heads = [], {}
        self.decoder_output = None
        encoder, decoder = model.encoder, model.decoder
        starts = first_layer_inputs(model, source, previous)
        stream = self.note(Units(starts[0]))
        for number, layer in enumerate(encoder.layers):
            stream = self.attend(ENCODER_SELF, number, layer.self_attn, layer, stream, stream)
            stream = self.feed_forward(layer, stream)
        memory = stream if encoder.layer_norm is None else self.norm(encoder.layer_norm, stream)
        stream = self.note(Units(starts[1]))
        for number, layer in enumerate(decoder.layers):
            stream = self.attend(DECODER_SELF, number, layer.self_attn, layer, stream, stream)
            if layer.encoder_attn is not None:
                stream = self.attend(CROSS, number, layer.encoder_attn, layer, stream, memory)
            stream = self.feed_forward(layer, stream)
        if decoder.layer_norm is not None:
            stream = self.norm(decoder.layer_norm, stream)
        if decoder.project_out_dim is not None:
            stream = self.linear(decoder.project_out_dim, stream)
        self.logits = self.linear(decoder.output_projection, stream)

    def note(self, units):
        self.tape.append(units)
        return units

    def relevance_of_heads(self, position):
        """Dict from attention and layer to the relevance of each head, from the top-1 logit."""
        for units in self.tape:
            units.relevance[:] = 0.0
        words = self.logits.values.shape[1]
        best = int(self.logits.values[position].argmax())
        self.logits.relevance[position * words + best] = 1.0
        for units in reversed(self.tape):
            for unit, relevance in enumerate(units.relevance):
                if relevance == 0.0 or not units.sources:
                    continue
                total = sum(abs(matrix[unit]).sum() for _, matrix in units.sources)
                for source, matrix in units.sources:
                    source.relevance += relevance * abs(matrix[unit]) / total
        return {
            place: units.relevance.reshape(len(units.values), heads, -1).sum(axis=(0, 2))
            for place, (units, heads) in self.heads.items()
        }

    def linear(self, layer, units):
        weight = array(layer.weight)
        matrix = by_position([weight * row for row in units.values])
        values = matrix.sum(axis=1).reshape(len(units.values), -1)
        if layer.bias is not None:
            values = values + array(layer.bias)
        return self.note(Units(values, [(units, matrix)]))

    def norm(self, layer, units):
        gain, bias = array(layer.weight), array(layer.bias)
        width = units.values.shape[1]
        slope = np.eye(width) - 1.0 / width
        deviations = np.sqrt(units.values.var(axis=1) + layer.eps)
        rows = units.values / deviations[:, None]
        matrix = by_position([gain[:, None] * slope * row for row in rows])
        values = matrix.sum(axis=1).reshape(units.values.shape) + bias
        return self.note(Units(values, [(units, matrix)]))

    def add(self, first, second):
        sources = [(units, np.diag(units.values.ravel())) for units in (first, second)]
        return self.note(Units(first.values + second.values, sources))

    def elementwise(self, values, units):
        return self.note(Units(values, [(units, np.eye(units.values.size))]))

    def feed_forward(self, layer, stream):
        norm, is_before = layer.final_layer_norm, layer.normalize_before
        inputs = self.norm(norm, stream) if is_before else stream
        hidden = self.linear(layer.fc1, inputs)
        active = array(layer.activation_fn(torch.tensor(hidden.values)))
        output = self.linear(layer.fc2, self.elementwise(active, hidden))
        stream = self.add(stream, output)
        return stream if is_before else self.norm(norm, stream)

    def attend(self, name, number, attention, layer, stream, memory):
        is_before = layer.normalize_before
        norm = layer.encoder_attn_layer_norm if name == CROSS else layer.self_attn_layer_norm
        if attention.mapping is not None:
            queries = self.norm(norm, stream) if is_before else stream
            keys = memory if name == CROSS else queries
            stream = self.add(stream, self.heads_of(name, number, attention, queries, keys))
        else:
            bias = np.tile(array(attention.out_proj.bias), (len(stream.values), 1))
            stream = self.elementwise(stream.values + bias, stream)
        return stream if is_before else self.norm(norm, stream)

    def heads_of(self, name, number, attention, queries, keys):
        heads = attention.num_heads
        query, key = (
            array(layer(torch.tensor(units.values))).reshape(len(units.values), heads, -1)
            for layer, units in ((attention.q_proj, queries), (attention.k_proj, keys))
        )
        scores = np.einsum("qhd,khd->hqk", query, key) / math.sqrt(query.shape[-1])
        if name == DECODER_SELF:
            scores = scores + np.triu(np.full(scores.shape[1:], -np.inf), 1)
        weights = array(attention.mapping(torch.tensor(scores)[None]))[0]
        values = self.linear(attention.v_proj, keys)
        gates = np.ones(heads) if attention.gate is None else array(attention.gate())
        size = values.values.shape[1] // heads
        matrix = np.zeros((len(queries.values) * heads * size, values.values.size))
        for unit in range(heads * size):
            places = slice(unit, None, heads * size)
            own = gates[unit // size] * weights[unit // size]
            matrix[places, places] = own * values.values[:, unit]
        outputs = matrix.sum(axis=1).reshape(-1, heads * size)
        output = self.note(Units(outputs, [(values, matrix)]))
        self.heads[name, number] = output, heads
        return self.linear(attention.out_proj, output)


def by_position(blocks):
    """A block-diagonal matrix: each position's units contribute only to that position."""
    height, width = blocks[0].shape
    matrix = np.zeros((len(blocks) * height, len(blocks) * width))
    for n, block in enumerate(blocks):
        matrix[n * height : (n + 1) * height, n * width : (n + 1) * width] = block
    return matrix


def array(tensor):
    return tensor.detach().double().numpy()


def first_layer_inputs(model, source, previous):
    """The inputs of the first layers of encoder and decoder, each ``(positions, width)``."""
    seen = []
    hooks = [
        stack.layers[0].register_forward_pre_hook(lambda _, args: seen.append(array(args[0][:, 0])))
        for stack in (model.encoder, model.decoder)
    ]
    with torch.no_grad():
        model(source, torch.tensor([source.size(1)]), previous)
    for hook in hooks:
        hook.remove()
    return seen
