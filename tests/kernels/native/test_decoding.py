"""Attention of one query per hypothesis, compared with torch's operations in float64."""

import pytest
import torch

from fairseq_entmax.kernels import torch_ops
from fairseq_entmax.kernels.inputs import Cached
from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native.decoding import step
from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler

SHAPES = [  # sources, beam, heads, keys, head_dim
    (1, 1, 1, 1, 8),
    (3, 5, 4, 7, 32),
    (2, 1, 3, 33, 20),
    (4, 3, 2, 16, 5),
    (2, 4, 8, 130, 64),
    (7, 2, 5, 17, 96),
]
EPSILONS = {"0": (0, 0), "0.5": (0.5, 0.5), "1": (1, 1), "each": (0.05, 0.95)}


def epsilons_of(heads, name="each"):
    return torch.linspace(*EPSILONS[name], heads)


def of_source(shape, seed=0):
    """A query, and cached keys and values of several sources, the last of which is all padding."""
    sources, beam, heads, keys, size = shape
    generator = torch.Generator().manual_seed(seed)
    query = 1.5 * torch.randn(sources * beam, heads * size, generator=generator)
    key, value = torch.randn(2, sources, heads, keys, size, generator=generator)
    padding = torch.rand(sources, keys, generator=generator) < 0.2
    padding[-1:] = sources > 1
    origins = torch.arange(sources, dtype=torch.int32).repeat_interleave(beam)
    return query, Cached(key, value, keys, origins, padding.float(), beam)


def in_float64(query, key, value, epsilon, padding=None):
    """Output ``(hypotheses, heads, head_dim)`` and probabilities; keys are given per hypothesis."""
    hypotheses, heads, _, size = key.shape
    queries = query.double().view(hypotheses, heads, 1, size)
    scores = size**-0.5 * (queries @ key.double().mT)
    if padding is not None:
        scores = scores.masked_fill(padding[:, None, None], -torch.inf)
    probs = torch_ops.probabilities(scores, epsilon.double().view(-1, 1, 1))
    return (probs @ value.double())[:, :, 0], probs[:, :, 0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_probabilities_match_float64(shape, epsilon):
    query, cached = of_source(shape)
    epsilons = epsilons_of(shape[2], epsilon)
    output, probs = step(query, cached, epsilons, shape[4] ** -0.5, wants_probs=True)
    own, padding = cached.origins.long(), cached.padding.bool()
    found = in_float64(query, cached.key[own], cached.value[own], epsilons, padding[own])
    torch.testing.assert_close(output.view(found[0].shape).double(), found[0], atol=3e-6, rtol=0)
    torch.testing.assert_close(probs.double(), found[1], atol=2e-6, rtol=0)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_score_that_is_not_finite_makes_only_its_row_nan(broken):
    query, cached = of_source((2, 2, 3, 9, 16))
    cached = cached._replace(padding=None)
    epsilons = epsilons_of(3)
    expected, _ = step(query, cached, epsilons, 1.0)
    query.view(4, 3, 16)[1, 2] = 0
    query.view(4, 3, 16)[1, 2, 0] = broken
    cached.key[0, :, 4] = cached.key[0, :, 4].abs()
    output, probs = step(query, cached, epsilons, 1.0, wants_probs=True)
    is_nan = torch.zeros(4, 3, dtype=torch.bool)
    is_nan[1, 2] = True
    assert torch.equal(output.view(4, 3, 16).isnan().all(-1), is_nan)
    assert torch.equal(output.view(4, 3, 16).isnan().any(-1), is_nan)
    assert torch.equal(probs.isnan().all(-1), is_nan)
    assert torch.equal(output.view(4, 3, 16)[2:], expected.view(4, 3, 16)[2:])


def test_results_are_bitwise_equal_for_any_number_of_threads(monkeypatch):
    query, cached = of_source((6, 5, 8, 40, 32))
    results = []
    for threads in (1, 2, 4):
        monkeypatch.setattr(library, "threads_for", lambda *_, number=threads: number)
        results.append(step(query, cached, epsilons_of(8), 0.2, wants_probs=True))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=0, rtol=0)
