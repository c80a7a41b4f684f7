"""The attention that pools words, against the formula written out."""

import math

import pytest
import torch

from fairseq_entmax.attention.pooling import AttentionPooling
from fairseq_entmax.mappings import sparsemax
from fairseq_entmax.mappings.registry import parse_mapping
from tests.support import EVERY_MAPPING

WORDS, BATCH, WIDTH = 5, 3, 8
KEYS = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0], [0, 0, 1, 0, 1]]).bool()


def make(mapping="softmax", heads=2, takes_query=False):
    torch.manual_seed(0)
    built = parse_mapping(mapping).build(heads)
    pooling = AttentionPooling(WIDTH, heads, built, takes_query).double()
    for name, parameter in pooling.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return pooling


def inputs(seed=1):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(WORDS, BATCH, WIDTH, generator=generator, dtype=torch.float64)
    return states, torch.randn(BATCH, WIDTH, generator=generator, dtype=torch.float64)


def by_loops(pooling, states, keys, query, mapping):
    """Pool one head of one text after the other."""
    size = WIDTH // pooling.num_heads
    results, all_weights = [], []
    for text in range(BATCH):
        own = [word for word in range(WORDS) if keys[text, word]]
        parts, weights = [], torch.zeros(pooling.num_heads, WORDS, dtype=torch.float64)
        for head in range(pooling.num_heads):
            part = slice(head * size, (head + 1) * size)
            if query is None:
                asked = pooling.query[head]
            else:
                asked = (pooling.q_proj.weight @ query[text] + pooling.q_proj.bias)[part]
            scores, values = [], []
            for word in own:
                state = states[word, text]
                key = (pooling.k_proj.weight @ state + pooling.k_proj.bias)[part]
                scores.append(asked @ key / math.sqrt(size))
                values.append((pooling.v_proj.weight @ state + pooling.v_proj.bias)[part])
            probs = mapping(torch.stack(scores))
            weights[head, own] = probs
            parts.append(sum(prob * value for prob, value in zip(probs, values, strict=True)))
        results.append(pooling.out_proj.weight @ torch.cat(parts) + pooling.out_proj.bias)
        all_weights.append(weights)
    return torch.stack(results), torch.stack(all_weights)


@pytest.mark.parametrize("takes_query", [False, True])
@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize(
    ("name", "mapping"), [("softmax", lambda z: z.softmax(0)), ("sparsemax", sparsemax)]
)
def test_pooling_is_the_formula_written_out(name, mapping, heads, takes_query):
    pooling, (states, query) = make(name, heads, takes_query), inputs()
    query = query if takes_query else None
    found = pooling(states, KEYS, query)
    expected = by_loops(pooling, states, KEYS, query, mapping)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


@pytest.mark.parametrize("mapping", [m for m in EVERY_MAPPING if "|" not in m])
def test_weights_are_probabilities_of_the_keys_alone(mapping):
    weights = make(mapping)(inputs()[0], KEYS)[1]
    assert weights.shape == (BATCH, 2, WORDS)
    assert (weights[~KEYS[:, None].expand_as(weights)] == 0).all()
    torch.testing.assert_close(weights.sum(2), torch.ones(BATCH, 2).double())


@pytest.mark.parametrize("takes_query", [True, False])
@pytest.mark.parametrize("mapping", ["softmax", "entmax", "entmax:tv=learned"])
def test_gradients_are_those_of_finite_differences(mapping, takes_query):
    pooling, (states, query) = make(mapping, takes_query=takes_query), inputs()
    names = ["k_proj.weight", "v_proj.weight", "q_proj.weight" if takes_query else "query"]
    names += [name for name, _ in pooling.named_parameters() if name.startswith("mapping.")]
    given = [pooling.get_parameter(name).detach().clone().requires_grad_() for name in names]

    def pool(states, query, *values):
        parameters = dict(zip(names, values, strict=True))
        own = query if takes_query else None
        return torch.func.functional_call(pooling, parameters, (states, KEYS, own))[0]

    query.requires_grad_(takes_query)
    assert torch.autograd.gradcheck(pool, (states.requires_grad_(), query, *given), atol=1e-6)


def test_weights_stay_float32_in_a_model_of_half_precision():
    pooling = make("entmax").bfloat16()
    pooled, weights = pooling(inputs()[0].bfloat16(), KEYS)
    assert pooled.dtype == torch.bfloat16
    assert weights.dtype == torch.float32
