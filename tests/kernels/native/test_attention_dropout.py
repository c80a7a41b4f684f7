"""Dropout of weights in the native kernel of attention: by the formula, and always the same weights."""

import pytest
import torch

from fairseq_entmax.kernels.dropout import factors, new_seed
from fairseq_entmax.kernels.native import attention as native
from fairseq_entmax.kernels.native import library
from tests.kernels import reference
from tests.kernels.native.support import needs_compiler
from tests.kernels.native.test_attention import future_mask, tensors

pytestmark = needs_compiler

CPU = torch.device("cpu")
SEED = torch.tensor([2**40 + 77])


def kept(shape, dropout, seed=SEED):
    """What weights are multiplied by, of a shape as ``tensors`` takes it."""
    return factors(shape[:4], dropout, seed, CPU)


def close(found, expected, tolerance):
    """Whether numbers differ by a part of the largest of those expected."""
    error = (found.double() - expected.double()).abs().max().item()
    assert error <= tolerance * max(1.0, expected.abs().max().item())


def gradients(shape, epsilon, dropout, seed=SEED, **options):
    """The output, and the gradients of query, key, value and epsilon."""
    *inputs, grad, padding = tensors(shape)
    leaves = [one.clone().requires_grad_() for one in (*inputs, torch.full(shape[1:2], epsilon))]
    output = native.attention(*leaves, padding, dropout=dropout, seed=seed, **options)
    output.backward(grad)
    return [output.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [1e-4, 0.25, 0.5, 1.0])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1, 8), (3, 4, 30, 30, 32), (2, 3, 17, 33, 20), (2, 2, 33, 300, 5)]
)
def test_output_and_gradients_are_those_of_float64(shape, epsilon, dropout):
    *inputs, grad, padding = tensors(shape)
    mask = future_mask(shape[2]) if shape[2] == shape[3] else None
    theirs = [one.double().requires_grad_() for one in (*inputs, torch.full(shape[1:2], epsilon))]
    truth = reference.attention(
        *theirs, padding, mask, scale=shape[-1] ** -0.5, kept=kept(shape, dropout)
    )
    truth.backward(grad.double())
    found = gradients(shape, epsilon, dropout, attn_mask=mask, scale=shape[-1] ** -0.5)
    close(found[0], truth, 5e-6)
    for one, other in zip(found[1:], theirs, strict=True):
        close(one, other.grad, 5e-5)


def test_masks_of_all_kinds_leave_the_same_weights():
    shape = (2, 3, 21, 45, 12)
    *inputs, grad, padding = tensors(shape, seed=3)
    generator = torch.Generator().manual_seed(4)
    mask = torch.randn(21, 45, generator=generator)
    mask[torch.rand(21, 45, generator=generator) < 0.3] = -torch.inf
    mask[5] = -torch.inf
    padding[-1, 3:30] = False
    ours = [one.clone().requires_grad_() for one in (*inputs, torch.tensor([0.2, 0.5, 0.9]))]
    theirs = [one.detach().double().requires_grad_() for one in ours]
    output = native.attention(*ours, padding, mask, causal=True, scale=0.3, dropout=0.4, seed=SEED)
    truth = reference.attention(
        *theirs, padding, mask, causal=True, scale=0.3, kept=kept(shape, 0.4)
    )
    close(output, truth, 5e-6)
    assert (output[:, :, 5] == 0).all()
    output.backward(grad)
    truth.backward(grad.double())
    for one, other in zip(ours, theirs, strict=True):
        close(one.grad, other.grad, 5e-5)


def test_the_weights_are_those_of_factors_to_the_bit_and_so_is_every_gradient_of_values():
    shape = (3, 4, 19, 45, 45)
    query, key, _, _, _ = tensors(shape)
    value = torch.eye(45).expand(3, 4, 45, 45)
    weights = native.attention(query, key, value, 0.3, scale=0.2)
    expected = weights * kept(shape, 0.4)
    leaf = value.clone().requires_grad_()
    found = native.attention(query, key, leaf, 0.3, scale=0.2, dropout=0.4, seed=SEED)
    assert torch.equal(found, expected)
    assert 0.3 < (expected == 0)[weights != 0].double().mean().item() < 0.5
    # Of one query alone a gradient has no sum
    found[:, :, 7, 0].sum().backward()
    assert torch.equal(leaf.grad[..., 0], expected[:, :, 7])


def test_without_dropout_a_seed_changes_no_bit():
    shape = (2, 3, 17, 33, 20)
    for one, other in zip(
        gradients(shape, 0.3, 0.0, None), gradients(shape, 0.3, 0.0), strict=True
    ):
        assert torch.equal(one, other)


def test_the_same_seed_drops_the_same_weights_and_another_drops_others():
    shape = (2, 3, 17, 33, 20)
    once, again = gradients(shape, 0.3, 0.3), gradients(shape, 0.3, 0.3)
    assert all(torch.equal(*pair) for pair in zip(once, again, strict=True))
    other = gradients(shape, 0.3, 0.3, SEED + 1)
    assert not any(torch.equal(*pair) for pair in zip(once, other, strict=True))


@pytest.mark.parametrize("shape", [(6, 4, 40, 50, 16), (1, 1, 90, 500, 16)])
def test_threads_change_no_bit(monkeypatch, shape):
    results = []
    for threads in (1, 2, 4):
        monkeypatch.setattr(library, "threads_for", lambda *_, threads=threads: threads)
        results.append(gradients(shape, 0.3, 0.2))
    for result in results[1:]:
        assert all(torch.equal(*pair) for pair in zip(result, results[0], strict=True))


def test_the_mean_over_seeds_is_attention_without_dropout():
    shape, seeds = (1, 2, 5, 9, 4), 4000
    *inputs, _, _ = tensors(shape)
    expected = native.attention(*inputs, 0.3)
    torch.manual_seed(0)
    outputs = torch.stack(
        [native.attention(*inputs, 0.3, dropout=0.3, seed=new_seed()) for _ in range(seeds)]
    ).double()
    error = outputs.std(0) / seeds**0.5
    assert (error > 0).any()
    assert ((outputs.mean(0) - expected).abs() <= 5 * error + 1e-6).all()


@pytest.mark.parametrize("epsilon", [0.5, torch.tensor([0.3]), torch.tensor([0.2, 0.7])])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"padding": True, "mask": True}])
def test_second_derivatives_are_those_of_float64(epsilon, options):
    *made, _ = tensors((2, 2, 19, 21, 8))
    reference.check_second_derivatives(native.attention, made, epsilon, dropout=0.3, **options)


def test_a_row_that_is_no_number_stays_so():
    *inputs, _, _ = tensors((1, 2, 20, 9, 8))
    inputs[0][0, 1, 4, 2] = torch.nan
    output = native.attention(*inputs, 0.5, dropout=0.5, seed=SEED)
    assert output[0, 1, 4].isnan().all()
    assert output.isnan().sum() == 8


@pytest.mark.parametrize("shape", [(0, 2, 3, 4, 8), (2, 2, 0, 4, 8), (2, 2, 3, 0, 8)])
def test_empty_tensors_are_taken(shape):
    found = gradients(shape, 0.5, 0.5)
    assert all((one == 0).all() for one in found)


# -- torch's transforms ------------------------------------------------------------------


def loss(query, key, value, epsilon, seed=SEED):
    return native.attention(query, key, value, epsilon, dropout=0.4, seed=seed).square().sum()


def leaves():
    *inputs, _, _ = tensors((2, 2, 3, 5, 4))
    return [*inputs, torch.tensor([0.3, 0.6])]


def assert_all_close(found, expected, tolerance=1e-4):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


def test_gradients_of_torch_func_are_those_of_a_backward_pass():
    given = [one.requires_grad_() for one in leaves()]
    expected = torch.autograd.grad(loss(*given), given)
    found = torch.func.grad(loss, argnums=(0, 1, 2, 3))(*leaves())
    assert_all_close(found, expected)


def test_vmap_is_one_call_after_another_with_seeds_that_are_shared_or_not():
    query, *others = leaves()
    queries, seeds = torch.stack([query, 2 * query, -query]), torch.tensor([[3], [4], [3]])
    places = (0, 1, 2, 3)
    gradient = torch.func.grad(loss, argnums=places)
    found = torch.vmap(gradient, (0, None, None, None, None))(queries, *others, SEED)
    alone = [gradient(one, *others, SEED) for one in queries]
    assert_all_close(found, [torch.stack(each) for each in zip(*alone, strict=True)])
    found = torch.vmap(gradient, (0, None, None, None, 0))(queries, *others, seeds)
    alone = [gradient(one, *others, seed) for one, seed in zip(queries, seeds, strict=True)]
    assert_all_close(found, [torch.stack(each) for each in zip(*alone, strict=True)])


@pytest.mark.parametrize("place", [0, 3])
def test_second_derivatives_of_torch_func_are_those_of_autograd(place):
    given = leaves()

    def function(one):
        return loss(*given[:place], one, *given[place + 1 :])

    expected = torch.autograd.functional.hessian(function, given[place])
    # Gradients of many outputs of one attention, all of which drop what it has dropped
    found = torch.func.jacrev(torch.func.grad(function))(given[place])
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


def test_jacobians_are_those_of_one_output_after_another():
    query, *others = leaves()

    def function(one):
        return native.attention(one, *others, dropout=0.4, seed=SEED)

    expected = torch.autograd.functional.jacobian(function, query)
    found = torch.func.jacrev(function)(query)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_compiled_attention_is_one_graph_that_draws_its_seed():
    def function(*given):
        return loss(*given, seed=new_seed())

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    results = []
    for one in (compiled, compiled, function):
        given = [leaf.requires_grad_() for leaf in leaves()]
        if not results or one is function:
            torch.manual_seed(6)
        results.append(torch.autograd.grad(one(*given), given))
    assert_all_close(results[0], results[2], 1e-6)
    assert not torch.equal(results[0][0], results[1][0])
