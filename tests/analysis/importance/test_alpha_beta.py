"""The αβ rule, against its definition with dense Jacobians by automatic differentiation."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fairseq_entmax.analysis.importance.alpha_beta import AlphaBeta
from fairseq_entmax.analysis.importance.relevance import head_relevance
from fairseq_entmax.attentions import CROSS, DECODER_SELF, ENCODER_SELF
from fairseq_entmax.mappings import parse_mapping
from tests.analysis.importance.test_relevance import CONFIGURATIONS, every_head, lost, make
from tests.support import batch


def by_definition(function, inputs, relevance):
    """Each input's relevance: Bach et al. 2015, equation 60, with α and β of one half."""
    output = function(*inputs)
    nothing = function(*map(torch.zeros_like, inputs)).flatten()[:, None]
    slopes = torch.autograd.functional.jacobian(function, inputs)
    impacts = torch.cat(
        [
            slope.reshape(output.numel(), -1) * x.flatten()
            for slope, x in zip(slopes, inputs, strict=True)
        ],
        dim=1,
    )
    impacts = impacts + nothing / impacts.size(1)
    shares = torch.zeros_like(impacts)
    for sign in (1, -1):
        part = (sign * impacts).clamp(min=0)
        shares += 0.5 * part / part.sum(dim=1, keepdim=True).clamp(min=1e-300)
    received = relevance.flatten() @ shares
    received = received / received.sum() * relevance.sum()
    parts = received.split([x.numel() for x in inputs])
    return [part.view_as(x) for part, x in zip(parts, inputs, strict=True)]


def by_position(function, inputs, relevance):
    each = zip(inputs, relevance, strict=True)
    return torch.stack([by_definition(function, (x,), r)[0] for x, r in each])


class Seen(AlphaBeta):
    """The rules, with the inputs and outputs of modules as given."""

    def __init__(self, inputs, outputs=None):
        self._input, self._output = inputs.__getitem__, (outputs or {}).__getitem__


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


@pytest.mark.parametrize("layer", [nn.Linear(5, 7), nn.Linear(5, 7, bias=False), nn.LayerNorm(5)])
def test_linear_layers_and_norms(layer):
    layer = layer.double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    inputs, outputs = torch.randn(3, 5).double(), 7 if isinstance(layer, nn.Linear) else 5
    relevance = torch.rand(2, 3, outputs).double()
    rules = Seen({layer: inputs})
    through = rules._through_linear if outputs == 7 else rules._through_norm
    found = through(layer, relevance)
    for one, expected in zip(found, relevance, strict=True):
        torch.testing.assert_close(one, by_position(layer, inputs, expected))


def test_a_residual_connection():
    projection = nn.Linear(4, 5)
    stream, added = torch.randn(2, 3, 5).double()
    relevance = torch.rand(1, 3, 5).double()
    parted = Seen({}, {projection: added})._parted(relevance, stream, projection)
    for place in range(3):
        both = by_definition(torch.add, (stream[place], added[place]), relevance[0, place])
        for found, expected in zip(parted, both, strict=True):
            torch.testing.assert_close(found[0, place], expected)


class Heads(nn.Module):
    """Two heads of width 3, of inputs of width 4."""

    def __init__(self, mapping):
        super().__init__()
        self.num_heads, self.mapping = 2, parse_mapping(mapping).build(num_heads=2)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(4, 6) for _ in range(3))


@pytest.mark.parametrize("name", [ENCODER_SELF, DECODER_SELF, CROSS])
@pytest.mark.parametrize("mapping", ["softmax", "entmax:alpha=1.3", "sparsemax"])
def test_attention_through_queries_keys_and_values(name, mapping):
    heads = Heads(mapping).double()
    of_queries = torch.randn(4, 4).double()
    of_keys = torch.randn(5, 4).double() if name == CROSS else of_queries
    three = (heads.q_proj, heads.k_proj, heads.v_proj)
    sides = dict(zip(three, (of_queries, of_keys, of_keys), strict=True))
    outputs = {layer: layer(x).detach() for layer, x in sides.items()}
    queries, keys, values = (outputs[layer].unflatten(-1, (2, 3)).unbind(1) for layer in three)
    hidden = torch.full((4, len(of_keys)), -torch.inf).triu(1) if name == DECODER_SELF else 0.0
    scores = [q @ k.t() / 3**0.5 + hidden for q, k in zip(queries, keys, strict=True)]

    def core(query, key, value):
        row = query @ key.t() / 3**0.5 + hidden
        return heads.mapping(row.expand(1, 2, -1, -1))[0, 0] @ value

    relevance = torch.rand(1, 4, 2, 3).double()
    inputs = {**sides, heads.mapping: torch.stack(scores)}
    query_side, key_side = Seen(inputs, outputs)._through_heads(name, heads, relevance)
    each = [
        by_definition(core, parts, relevance[0, :, head])
        for head, parts in enumerate(zip(queries, keys, values, strict=True))
    ]
    q, k, v = (torch.cat(parts, dim=-1) for parts in zip(*each, strict=True))
    if name == CROSS:
        torch.testing.assert_close(query_side[0], by_position(heads.q_proj, of_queries, q))
        behind, layers = torch.cat([k, v], dim=-1), three[1:]
    else:
        assert query_side is None
        behind, layers = torch.cat([q, k, v], dim=-1), three
    weight, bias = (torch.cat([getattr(x, n) for x in layers]) for n in ("weight", "bias"))
    together = by_position(lambda x: functional.linear(x, weight, bias), of_keys, behind)
    torch.testing.assert_close(key_side[0], together)


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_no_relevance_is_lost_and_predictions_may_be_taken_one_by_one(options):
    model, sample = make(**options).double(), batch([5, 3], [4, 2])
    found = head_relevance(model, sample, is_alpha_beta=True)
    assert lost(found) < 1e-9
    alone = head_relevance(model, sample, predictions_at_once=1, is_alpha_beta=True)
    for (*_, one), (*_, other) in zip(every_head(found), every_head(alone), strict=True):
        torch.testing.assert_close(one, other)
