"""Relevance propagation by its definition: every step is a dense matrix of contributions.

It does not use the package's rules. Each tensor of the network is a row of units. With attention
weights, deviations and slopes of activations held fixed, each unit is a sum of contributions from
earlier units and a bias, so a contribution is the derivative times the earlier unit. The forward
pass records these contributions, and relevance flows back through the record in proportion to their
absolute values.
"""

import math

import torch
from torch.autograd.functional import jacobian

from fairseq_entmax.attentions import CROSS, DECODER_SELF, ENCODER_SELF


class Units:
    """A tensor ``(positions, width)`` and the sources of its units.

    ``sources`` are pairs of earlier units and a matrix ``(own units, their units)``.
    """

    def __init__(self, values, sources=()):
        self.values = values.detach()
        self.sources = sources
        self.relevance = torch.zeros_like(self.values).flatten()


class Reference:
    """One sentence through a model of this package, in float64."""

    def __init__(self, model, source, previous):
        self.tape, self.heads = [], {}
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
            stream = self.step(decoder.project_out_dim, stream)
        self.logits = self.step(decoder.output_projection, stream)

    def note(self, units):
        self.tape.append(units)
        return units

    def step(self, function, *inputs):
        """The units that a function makes of others; it is linear, except for a bias."""
        values = tuple(units.values for units in inputs)
        slopes = jacobian(function, values, vectorize=True)
        sources = [
            (units, (slope * units.values).reshape(-1, units.values.numel()))
            for units, slope in zip(inputs, slopes, strict=True)
        ]
        return self.note(Units(function(*values), sources))

    def relevance_of_heads(self, position):
        """Dict from attention and layer to the relevance of each head, from the top-1 logit."""
        for units in self.tape:
            units.relevance.zero_()
        logits = self.logits.values
        self.logits.relevance.view_as(logits)[position, logits[position].argmax()] = 1.0
        for units in reversed(self.tape):
            total = sum(matrix.abs().sum(dim=1) for _, matrix in units.sources)
            share = torch.where(units.relevance == 0, 0.0, units.relevance / total)
            for source, matrix in units.sources:
                source.relevance += share @ matrix.abs()
        return {
            place: units.relevance.reshape(len(units.values), heads, -1).sum(dim=(0, 2))
            for place, (units, heads) in self.heads.items()
        }

    def norm(self, layer, units):
        deviations = (units.values.var(dim=1, correction=0, keepdim=True) + layer.eps).sqrt()

        def normalised(rows):
            return layer.weight * (rows - rows.mean(dim=1, keepdim=True)) / deviations + layer.bias

        return self.step(normalised, units)

    def feed_forward(self, layer, stream):
        norm, is_before = layer.final_layer_norm, layer.normalize_before
        inputs = self.norm(norm, stream) if is_before else stream
        hidden = self.step(layer.fc1, inputs)
        slopes = layer.activation_fn(hidden.values) / hidden.values
        active = self.step(lambda rows: rows * slopes, hidden)
        stream = self.step(torch.add, stream, self.step(layer.fc2, active))
        return stream if is_before else self.norm(norm, stream)

    def attend(self, name, number, attention, layer, stream, memory):
        is_before = layer.normalize_before
        norm = layer.encoder_attn_layer_norm if name == CROSS else layer.self_attn_layer_norm
        if attention.mapping is not None:
            queries = self.norm(norm, stream) if is_before else stream
            keys = memory if name == CROSS else queries
            output = self.heads_of(name, number, attention, queries.values, keys)
            stream = self.step(torch.add, stream, output)
        else:
            stream = self.step(lambda rows: rows + attention.out_proj.bias, stream)
        return stream if is_before else self.norm(norm, stream)

    def heads_of(self, name, number, attention, queries, keys):
        def by_head(rows):
            return rows.unflatten(1, (attention.num_heads, -1)).transpose(0, 1)

        query, key = by_head(attention.q_proj(queries)), by_head(attention.k_proj(keys.values))
        scores = query @ key.mT / math.sqrt(query.size(-1))
        if name == DECODER_SELF:
            scores = scores + torch.full_like(scores[0], -math.inf).triu(1)
        weights = attention.mapping(scores[None])[0].detach()
        if attention.gate is not None:
            weights = weights * attention.gate().view(-1, 1, 1)
        values = self.step(attention.v_proj, keys)
        output = self.step(lambda v: (weights @ by_head(v)).transpose(0, 1).flatten(1), values)
        self.heads[name, number] = output, attention.num_heads
        return self.step(attention.out_proj, output)


def first_layer_inputs(model, source, previous):
    """The inputs of the first layers of encoder and decoder, each ``(positions, width)``."""
    seen = []
    hooks = [
        stack.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0][:, 0]))
        for stack in (model.encoder, model.decoder)
    ]
    with torch.no_grad():
        model(source, torch.tensor([source.size(1)]), previous)
    for hook in hooks:
        hook.remove()
    return seen
