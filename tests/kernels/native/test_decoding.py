"""Attention of one query per hypothesis, compared with torch's operations in float64."""

import pytest
import torch

from fairseq_entmax.kernels import torch_ops
from fairseq_entmax.kernels.inputs import Cached
from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native.decoding import step
from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler

# Sources, beam, heads, keys, head_dim
SHAPES = [(1, 1, 1, 1, 8), (3, 5, 4, 7, 32), (2, 1, 3, 33, 20), (4, 3, 2, 16, 5)]
SHAPES += [(2, 4, 8, 130, 64), (7, 2, 5, 17, 96)]
EPSILONS = {"0": (0, 0), "0.5": (0.5, 0.5), "1": (1, 1), "each": (0.05, 0.95)}


def epsilons_of(heads, name="each"):
    return torch.linspace(*EPSILONS[name], heads)


def of_source(shape):
    """A query, and cached keys and values of several sources, the last of which is all padding."""
    sources, beam, heads, keys, size = shape
    generator = torch.Generator().manual_seed(0)
    query = 1.5 * torch.randn(sources * beam, heads * size, generator=generator)
    key, value = torch.randn(2, sources, heads, keys, size, generator=generator)
    padding = torch.rand(sources, keys, generator=generator) < 0.2
    padding[-1:] = sources > 1
    origins = torch.arange(sources, dtype=torch.int32).repeat_interleave(beam)
    return query, Cached(key, value, keys, origins, padding.float(), beam)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_probabilities_match_float64(shape, epsilon):
    _, _, heads, _, size = shape
    query, cached = of_source(shape)
    epsilons = epsilons_of(heads, epsilon)
    output, probs = step(query, cached, epsilons, size**-0.5, wants_probs=True)
    key, value, padding = (
        one[cached.origins] for one in (cached.key, cached.value, cached.padding)
    )
    scores = size**-0.5 * (query.double().view(-1, heads, 1, size) @ key.double().mT)
    scores = scores.masked_fill(padding[:, None, None].bool(), -torch.inf)
    truth = torch_ops.probabilities(scores, epsilons.double().view(-1, 1, 1))
    expected = (truth @ value.double()).view(output.shape)
    torch.testing.assert_close(output.double(), expected, atol=3e-6, rtol=0)
    torch.testing.assert_close(probs.double(), truth[:, :, 0], atol=2e-6, rtol=0)


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
