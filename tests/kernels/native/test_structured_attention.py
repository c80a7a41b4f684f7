"""Attention with structure in one native kernel, against float64 with rows one at a time."""

import numpy as np
import pytest
import torch

from fairseq_entmax.kernels.inputs import ScoreSettings, masked_scores
from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native import structured as native_rows
from fairseq_entmax.kernels.native.attention import attention, structured_attention
from fairseq_entmax.kernels.structure import KINDS, OSCAR, PNORM, TV, Structure
from fairseq_entmax.mappings.structured import map_structured
from tests.kernels import structured_reference as reference
from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler

SHAPES = [  # batch, heads, queries, keys, head_dim
    (1, 1, 1, 1, 8),
    (3, 2, 7, 7, 16),
    (2, 2, 17, 21, 20),
    (1, 2, 20, 20, 5),
]
STRENGTH = {TV: 0.2, OSCAR: 0.02, PNORM: 1.3}


def tensors(shape, seed=0):
    """Query, key, value, gradient of the output, and padding with gaps, of which some is all."""
    batch, heads, queries, keys, size = shape
    generator = torch.Generator().manual_seed(seed)
    lengths = (queries, keys, keys, queries)
    made = [torch.randn(batch, heads, length, size, generator=generator) for length in lengths]
    padding = torch.rand(batch, keys, generator=generator) < 0.2
    padding[-1:] = batch > 1
    return *made, padding


def a_mask(queries, keys):
    """A bias, and keys in the middle that some queries do not see."""
    generator = torch.Generator().manual_seed(9)
    mask = torch.randn(queries, keys, generator=generator)
    hidden = torch.rand(queries, keys, generator=generator) < 0.15
    return mask.masked_fill(hidden, -torch.inf)


def truth(inputs, kind, epsilons, strengths, grad, settings):
    """The output and all gradients in float64, rows and their differences one at a time."""
    query, key, value, grad = (tensor.double() for tensor in (*inputs, grad))
    scores = masked_scores(query, key, settings).double()
    exact = settings.scale * query @ key.mT
    scores = torch.where(scores == -torch.inf, scores, exact)
    if settings.attn_mask is not None:
        scores = scores + settings.attn_mask.double()
    for_probs = grad @ value.mT
    probs, for_scores = torch.zeros_like(scores), torch.zeros_like(scores)
    of_heads = torch.zeros(2, scores.size(1), dtype=torch.float64)
    for place in np.ndindex(*scores.shape[:3]):
        row = scores[place].numpy()
        if row.max() == -np.inf:
            continue
        parameters = (epsilons[place[1]].item(), strengths[place[1]].item())
        probs[place] = torch.from_numpy(reference.probabilities(kind, row[None], *parameters)[0])
        own = reference.gradients(kind, row, *parameters, for_probs[place].numpy())
        for_scores[place] = torch.from_numpy(own[0])
        of_heads[0, place[1]] += own[1]
        of_heads[1, place[1]] += own[2]
    for_scores = for_scores * settings.scale
    gradients = (for_scores @ key, for_scores.mT @ query, probs.mT @ grad, *of_heads)
    return probs @ value, gradients


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", ["padding", "mask", "causal", "all"])
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_gradients_are_those_of_float64(shape, options, kind):
    *inputs, grad, padding = tensors(shape)
    _, heads, queries, keys, size = shape
    settings = ScoreSettings(
        padding if options in ("padding", "all") else None,
        a_mask(queries, keys) if options in ("mask", "all") else None,
        options in ("causal", "all"),
        size**-0.5,
    )
    epsilons = torch.linspace(0.4, 0.95, heads).requires_grad_()
    strengths = torch.linspace(STRENGTH[kind], 2 * STRENGTH[kind], heads).requires_grad_()
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    output = structured_attention(*leaves, kind, epsilons, strengths, *settings[:4])
    expected, gradients = truth(inputs, kind, epsilons, strengths, grad, settings)
    torch.testing.assert_close(output.double(), expected, atol=5e-6, rtol=0)
    output.backward(grad)
    for leaf, gradient in zip((*leaves, epsilons, strengths), gradients, strict=True):
        size = max(1.0, gradient.abs().max().item())
        torch.testing.assert_close(leaf.grad.double(), gradient, atol=1e-4 * size, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_row_is_that_of_rows_alone(kind):
    *inputs, grad, padding = tensors((2, 2, 9, 300, 16), seed=3)
    query, key, value = (tensor.requires_grad_() for tensor in inputs)
    padding[1] = padding[0]
    epsilon, strength = torch.tensor([0.5, 1.0]), torch.full((2,), STRENGTH[kind])
    strength.requires_grad_()
    output = structured_attention(query, key, value, kind, epsilon, strength, padding, scale=0.5)
    output.backward(grad)
    scores = (0.5 * query @ key.mT).masked_fill(padding[:, None, None], -torch.inf).detach()
    rows = (epsilon.view(2, 1, 1), strength.detach().view(2, 1, 1))
    probs = native_rows.probabilities(scores, kind, *rows)
    torch.testing.assert_close(output, probs @ value, atol=1e-5, rtol=0)
    masked = scores == -torch.inf
    for_scores, _, for_strength = native_rows.gradients(
        probs, kind, *rows, masked, (grad @ value.mT).detach(), (True, False, True)
    )
    torch.testing.assert_close(query.grad, 0.5 * for_scores @ key, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(strength.grad, for_strength.sum((0, 2, 3)), atol=1e-3, rtol=1e-4)


def test_a_gap_in_the_padding_parts_neighbours():
    key = torch.tensor([1.0, 0.9, 0.8, 0.7]).view(1, 1, 4, 1)
    value, query = torch.eye(4).view(1, 1, 4, 4), torch.ones(1, 1, 1, 1)
    inputs = (query.expand(1, 1, 1, 4) / 4, key.expand(1, 1, 4, 4), value)
    whole = structured_attention(*inputs, TV, 1.0, 10.0)
    torch.testing.assert_close(whole.flatten(), torch.full((4,), 0.25))
    padding = torch.tensor([[False, False, True, False]])
    parts = structured_attention(*inputs, TV, 1.0, 10.0, padding).flatten()
    assert parts[0] == parts[1]
    assert parts[2] == 0
    torch.testing.assert_close(parts[0] - parts[3], torch.tensor(0.25))  # of the scores


@pytest.mark.parametrize("kind", [TV, OSCAR])
def test_a_strength_of_0_is_attention_without_structure(kind):
    *inputs, grad, padding = tensors((2, 2, 20, 25, 16))
    results = []
    for function in (attention, lambda *a, **k: structured_attention(*a[:3], kind, a[3], 0.0, **k)):
        leaves = [tensor.clone().requires_grad_() for tensor in (*inputs, torch.tensor([0.3, 1.0]))]
        output = function(*leaves, key_padding_mask=padding, causal=True)
        output.backward(grad)
        results.append([output, *(leaf.grad for leaf in leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_incremental_queries_are_those_of_the_causal_whole(kind):
    *inputs, _, padding = tensors((2, 2, 23, 23, 8))
    padding[1] = False
    whole = structured_attention(*inputs, kind, 0.6, STRENGTH[kind], padding, causal=True)
    query, key, value = inputs
    for length in (1, 5, 17, 23):
        prefix = (query[:, :, length - 1 : length], key[:, :, :length], value[:, :, :length])
        one = structured_attention(*prefix, kind, 0.6, STRENGTH[kind], padding[:, :length])
        torch.testing.assert_close(one[:, :, 0], whole[:, :, length - 1], atol=2e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_of_one_are_for_all_heads(kind):
    *inputs, _, _ = tensors((2, 3, 20, 25, 16))
    shared = [torch.tensor([value], requires_grad=True) for value in (0.7, STRENGTH[kind])]
    each = [torch.full((3,), value, requires_grad=True) for value in (0.7, STRENGTH[kind])]
    for parameters in (shared, each):
        structured_attention(*inputs, kind, *parameters).square().sum().backward()
    for one, other in zip(shared, each, strict=True):
        torch.testing.assert_close(one.grad, other.grad.sum().view(1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_spoils_its_query_or_its_head_alone(kind):
    *inputs, grad, padding = tensors((2, 3, 20, 9, 8))
    padding[0], padding[1] = True, False
    strengths = torch.full((3,), STRENGTH[kind])
    clean = structured_attention(*inputs, kind, 0.5, strengths, padding)
    strengths[1] = torch.nan
    inputs[0][1, 2, 4, 1] = torch.nan
    leaves = [tensor.clone().requires_grad_() for tensor in (*inputs, strengths)]
    output = structured_attention(*leaves[:3], kind, 0.5, leaves[3], padding)
    output.backward(grad)
    assert (output[0] == 0).all()  # no query has a key
    assert output[1, 1].isnan().all()
    assert output[1, 2, 4].isnan().all()
    others = [query for query in range(20) if query != 4]
    assert torch.equal(output[1, 0], clean[1, 0])
    assert torch.equal(output[1, 2, others], clean[1, 2, others])
    assert leaves[0].grad[1, 0].isfinite().all()
    assert leaves[3].grad[0].isfinite()
    assert leaves[3].grad[1:].isnan().all()


@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_no_bit(kind, monkeypatch):
    *inputs, grad, padding = tensors((6, 4, 40, 50, 16))
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(library, "threads_for", lambda *_, threads=threads: threads)
        leaves = [t.clone().requires_grad_() for t in (*inputs, torch.full((4,), STRENGTH[kind]))]
        output = structured_attention(*leaves[:3], kind, 0.6, leaves[3], padding)
        output.backward(grad)
        results.append([output, *(leaf.grad for leaf in leaves)])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(0, 2, 3, 4, 8), (2, 2, 0, 4, 8), (2, 2, 3, 0, 8)])
def test_empty_tensors_are_taken(shape, kind):
    *inputs, grad, padding = tensors(shape)
    leaves = [tensor.requires_grad_() for tensor in (*inputs, torch.full((shape[1],), 0.5))]
    output = structured_attention(*leaves[:3], kind, 0.5, leaves[3], padding)
    assert output.shape == inputs[0].shape
    output.backward(grad)
    assert all((leaf.grad == 0).all() for leaf in leaves)


def test_a_strength_that_does_not_fit_is_refused():
    *inputs, _, _ = tensors((1, 2, 3, 4, 8))
    with pytest.raises(ValueError, match=r"strength must be a number, or floating point of shape"):
        structured_attention(*inputs, TV, 0.5, torch.ones(3))


def by_rows(query, key, value, kind, epsilon, strength, padding, mask, scale):
    """The same in float64 with torch's operations, which have second derivatives."""
    scores = scale * query @ key.mT + mask.double()
    scores = scores.masked_fill(padding[:, None, None], -torch.inf)
    parameters = (p.reshape(-1, 1, 1) for p in (epsilon, strength))
    return map_structured(scores, Structure(kind, *parameters)) @ value


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_are_those_of_float64(kind, heads):
    *inputs, grad, padding = tensors((2, 2, 11, 13, 8))
    mask = a_mask(11, 13)
    epsilon, strength = torch.full((heads,), 0.4), torch.full((heads,), STRENGTH[kind])
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [t.to(dtype, copy=True).requires_grad_() for t in (*inputs, epsilon, strength)]
        function = structured_attention if dtype == torch.float32 else by_rows
        output = function(*leaves[:3], kind, *leaves[3:], padding, mask, scale=0.3)
        loss = (output * grad.to(dtype)).sum() + output.square().sum()
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in first)
        results.append([*first, *torch.autograd.grad(penalty, leaves)])
    for result, expected in zip(*results, strict=True):
        assert expected.abs().max() > 1e-3
        error = (result.double() - expected).abs().max()
        assert error <= 1e-3 * expected.abs().max()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_many_outputs_at_once_are_those_of_one_after_another(kind):
    *inputs, grad, _ = tensors((1, 2, 3, 4, 8))
    leaf = inputs[0].requires_grad_()
    output = structured_attention(*inputs, kind, 0.6, STRENGTH[kind])
    grads = torch.stack([grad, grad.flip(0, 3), -grad])
    (together,) = torch.autograd.grad(output, leaf, grads, is_grads_batched=True, retain_graph=True)
    for one, result in zip(grads, together, strict=True):
        (expected,) = torch.autograd.grad(output, leaf, one, retain_graph=True)
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)
