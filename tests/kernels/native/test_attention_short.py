"""Attention on short rows in C, whose heads take a way of their own where many keys have weight."""

import pytest
import torch

from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native.attention import attention
from tests.kernels import reference
from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler

# What the queries of each head are multiplied by: from all keys with a probability to few
SPREADS = torch.tensor([0.05, 0.5, 1.2, 2.0, 8.0]).view(-1, 1, 1)
HEADS = len(SPREADS)
SEED = torch.tensor([5])


def tensors(queries, keys, size, seed=0):
    """Query, key, value and the gradient of the output, of two sentences, and the padding."""
    generator = torch.Generator().manual_seed(seed)
    query, key, value, grad = (
        torch.randn(2, HEADS, length, size, generator=generator)
        for length in (queries, keys, keys, queries)
    )
    padding = torch.zeros(2, keys, dtype=torch.bool)
    padding[0, : keys // 4] = True
    padding[1, keys // 2] = keys > 1
    return query * SPREADS, key, value, grad, padding


def results(function, inputs, epsilon, grad, *arguments, **options):
    """The output and the gradients of query, key, value and epsilon."""
    ours = [tensor.clone().requires_grad_() for tensor in (*inputs, epsilon)]
    output = function(*ours, *arguments, **options)
    output.backward(grad)
    return [output.detach(), *(tensor.grad for tensor in ours)]


def support_of(function):
    """The probabilities that a forward pass keeps."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor
    ):
        function()
    return kept[-1]


def test_the_heads_of_these_tests_are_dense_and_sparse():
    *inputs, _, _ = tensors(31, 31, 32)
    shares = []
    for head in range(HEADS):
        one = [tensor[:, head : head + 1].clone().requires_grad_() for tensor in inputs]
        shares.append(
            support_of(lambda one=one: attention(*one, 0.4, scale=32**-0.5)).numel() / (2 * 31 * 31)
        )
    assert shares[0] == 1
    assert 0.5 < shares[1] < 1
    assert 0.1 < shares[3] < 0.25 < shares[2] < 0.4  # on both sides of what is dense
    assert shares[4] < 0.1


@pytest.mark.parametrize("options", [{}, {"padding"}, {"mask"}, {"causal"}, {"causal", "padding"}])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize(
    "shape", [(31, 31, 32), (5, 160, 20), (37, 40, 72), (33, 17, 3), (40, 300, 8)]
)
def test_output_and_gradients_of_any_density_are_those_of_float64(shape, epsilon, options):
    queries, keys, size = shape
    *inputs, grad, padding = tensors(*shape)
    epsilons = torch.full((HEADS,), epsilon)
    mask = None
    if "mask" in options:
        mask = torch.linspace(-1, 1, queries * keys).view(queries, keys).clone()
        mask[:, 1::3] = -torch.inf
        mask[1] = -torch.inf
    arguments = (padding if "padding" in options else None, mask)
    more = {"causal": "causal" in options and queries <= keys, "scale": size**-0.5}
    ours = results(attention, inputs, epsilons, grad, *arguments, **more)
    theirs = results(
        reference.attention,
        *([tensor.double() for tensor in inputs], epsilons.double(), grad.double()),
        *(
            None if one is None else one.double() if one.is_floating_point() else one
            for one in arguments
        ),
        **more,
    )
    for one, other in zip(ours, theirs, strict=True):
        scale = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one.double() / scale, other / scale, atol=3e-5, rtol=3e-5)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"dropout": 0.3, "seed": SEED}])
def test_threads_change_no_bit_whatever_the_heads_are(monkeypatch, options):
    *inputs, grad, padding = tensors(37, 45, 24)
    found = []
    for threads in (1, 2, 3, 4):
        monkeypatch.setattr(library, "threads_for", lambda *_, threads=threads: threads)
        found.append(
            results(
                attention, inputs, torch.full((HEADS,), 0.3), grad, padding, scale=0.2, **options
            )
        )
    for result in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(result, found[0], strict=True))


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_what_a_query_does_not_see_harms_it_not_even_if_it_is_no_number(place):
    *inputs, grad, _ = tensors(20, 20, 16)
    epsilon = torch.full((HEADS,), 0.3)
    clean = results(attention, inputs, epsilon, grad, causal=True, scale=0.25)
    (*inputs, grad)[place][:, :, 15] = torch.inf
    harmed = results(attention, inputs, epsilon, grad, causal=True, scale=0.25)
    for output, same in zip(harmed[:2], clean[:2], strict=True):
        torch.testing.assert_close(output[:, :, :15], same[:, :, :15], atol=1e-5, rtol=1e-5)
    if place == 3:  # later keys are seen by later queries alone
        for grads, same in zip(harmed[1:4], clean[1:4], strict=True):
            torch.testing.assert_close(grads[:, :, 16:], same[:, :, 16:], atol=1e-5, rtol=1e-5)


def test_a_query_that_is_no_number_spoils_itself_alone_among_dense_ones():
    *inputs, _, _ = tensors(20, 9, 8)
    clean = attention(*inputs, 0.5, scale=0.1)
    inputs[0][0, 1, 4, 2] = torch.nan
    output = attention(*inputs, 0.5, scale=0.1)
    assert output[0, 1, 4].isnan().all()
    output[0, 1, 4] = clean[0, 1, 4]
    assert torch.equal(output, clean)


@pytest.mark.parametrize(("spread", "share"), [(0.01, 1.0), (3.0, 0.5)])
def test_no_more_than_twice_the_support_stays_in_memory(spread, share):
    *inputs, _, _ = tensors(30, 50, 16)
    query, key, value = (tensor[:, :1].contiguous() for tensor in inputs)
    query = (query / SPREADS[0] * spread).requires_grad_()
    probs = support_of(lambda: attention(query, key, value, 0.5))
    assert 0 < probs.numel() <= share * 2 * 30 * 50
    assert probs.untyped_storage().nbytes() <= 2 * probs.numel() * probs.element_size()
