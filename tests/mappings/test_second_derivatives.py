"""Second derivatives of the mappings: against softmax, finite differences, and every way to ask."""

import math

import pytest
import torch
from torch.autograd import functional

from fairseq_entmax.mappings import entmax, softmax, sparsemax
from tests.mappings.reference import random_rows

INF = math.inf
ALPHAS = (1.0, 1.0001, 1.1, 1.3, 1.5, 1.75, 2.0)
INNER = ALPHAS[1:-1]
every_alpha = pytest.mark.parametrize("alpha", ALPHAS)


def masked_rows(rows=6, keys=5, dtype=torch.float64):
    """Dense and sparse rows; one key of all but one masked, and all keys of one row."""
    scores = random_rows(rows, keys, 1.5, seed=4, dtype=dtype)
    scores[1:, 2] = -INF
    scores[3] = -INF
    return scores


def penalty(alpha):
    """A function of scores of which both the mapping and the rest have second derivatives."""
    return lambda scores: entmax(scores, alpha).square().sum() + scores.pow(3).sum()


def hessian_by_differences(function, scores, step=1e-6):
    """Of gradients, which tests/mappings/test_gradients.py holds to those of bisection."""
    columns = []
    for place in range(scores.numel()):
        moved = torch.zeros_like(scores)
        moved.view(-1)[place] = step
        sides = []
        for side in (scores + moved, scores - moved):
            leaf = side.requires_grad_()
            sides.append(torch.autograd.grad(function(leaf), leaf)[0])
        columns.append((sides[0] - sides[1]) / (2 * step))
    return torch.stack(columns, -1).view(*scores.shape, *scores.shape)


# -- scores -------------------------------------------------------------------------------


@every_alpha
def test_the_derivative_of_the_gradient_of_a_gradient_has_the_part_of_the_mapping(alpha):
    scores = random_rows(3, 5, 1.0).requires_grad_()
    (gradient,) = torch.autograd.grad(penalty(alpha)(scores), scores, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), scores)
    hessian = hessian_by_differences(penalty(alpha), scores.detach())
    expected = 2 * torch.einsum("ijkl,ij->kl", hessian, gradient.detach())
    torch.testing.assert_close(second, expected, atol=1e-6, rtol=1e-6)


@every_alpha
def test_a_hessian_is_that_of_finite_differences(alpha):
    scores = random_rows(3, 5, 1.0)
    expected = hessian_by_differences(penalty(alpha), scores)
    for vectorize in (False, True):
        hessian = functional.hessian(penalty(alpha), scores, vectorize=vectorize)
        torch.testing.assert_close(hessian, expected, atol=1e-6, rtol=1e-6)


def test_of_a_linear_function_of_the_probabilities_too():
    # The incoming gradient has no history there
    scores, weights = random_rows(3, 5, 1.0), random_rows(3, 5, 1.0, seed=9)

    def function(scores):
        return (entmax(scores, 1.3) * weights).sum()

    expected = hessian_by_differences(function, scores)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(functional.hessian(function, scores), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("alpha", [1.0, torch.tensor(1.0).double(), 1.0 + 1e-9])
def test_at_alpha_one_it_is_that_of_torch_softmax(alpha):
    scores = random_rows(4, 6, 2.0)
    expected = functional.hessian(lambda z: torch.softmax(z, -1).pow(3).sum(), scores)
    hessian = functional.hessian(lambda z: entmax(z, alpha).pow(3).sum(), scores)
    torch.testing.assert_close(hessian, expected, atol=1e-7, rtol=1e-7)
    exact = functional.hessian(lambda z: softmax(z).pow(3).sum(), scores)
    torch.testing.assert_close(exact, expected, atol=1e-14, rtol=1e-12)


def test_sparsemax_is_linear_between_its_bends():
    scores = random_rows(4, 6, 1.0)
    assert (functional.hessian(lambda z: sparsemax(z)[:, 0].sum(), scores) == 0).all()


@every_alpha
def test_products_with_a_vector_are_those_of_the_hessian(alpha):
    scores, vector = random_rows(3, 4, 1.0), random_rows(3, 4, 1.0, seed=3)
    expected = torch.einsum("ijkl,kl->ij", hessian_by_differences(penalty(alpha), scores), vector)
    for product in (functional.hvp, functional.vhp):
        result = product(penalty(alpha), scores, vector)[1]
        torch.testing.assert_close(result, expected, atol=1e-6, rtol=1e-6)


@every_alpha
def test_gradgradcheck_holds_for_scores_masked_or_not(alpha):
    scores = masked_rows()
    kept = scores > -INF
    leaf = scores[kept].requires_grad_()

    def function(values):
        return entmax(scores.masked_scatter(kept, values), alpha)

    assert torch.autograd.gradgradcheck(function, (leaf,), atol=1e-6, rtol=1e-5)


@every_alpha
@pytest.mark.parametrize("as_tensor", [False, True])
def test_masked_keys_and_rows_have_second_derivatives_of_zero(alpha, as_tensor):
    scores = masked_rows().requires_grad_()
    used = torch.tensor(alpha).double().requires_grad_() if as_tensor else alpha
    loss = entmax(scores, used).pow(3).sum()
    (gradient,) = torch.autograd.grad(loss, scores, create_graph=True)
    gradient.square().sum().backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[scores == -INF] == 0).all()
    if as_tensor:
        assert used.grad.isfinite()


def test_a_third_derivative_is_that_of_torch_softmax():
    scores = random_rows(1, 4, 1.0)
    results = []
    for function in (softmax, lambda z: entmax(z, torch.ones(()).double()), torch.softmax):
        leaf = scores.clone().requires_grad_()
        probs = function(leaf, -1) if function is torch.softmax else function(leaf)
        (result,) = torch.autograd.grad(probs.pow(3).sum(), leaf, create_graph=True)
        (result,) = torch.autograd.grad(result.square().sum(), leaf, create_graph=True)
        (result,) = torch.autograd.grad(result.square().sum(), leaf)
        results.append(result)
    for result in results[:2]:
        torch.testing.assert_close(result, results[2], atol=1e-12, rtol=1e-10)


# -- alpha --------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", INNER)
@pytest.mark.parametrize("shape", [(), (2, 1, 1), (1, 2, 3, 1)])
def test_gradgradcheck_holds_for_scores_and_alpha(alpha, shape):
    scores = masked_rows(keys=4).view(1, 2, 3, 4)
    kept = scores > -INF
    # At 1.0001 too the step of the differences is to stay above 1
    alphas = torch.full(shape, alpha, dtype=torch.float64, requires_grad=True)

    def function(values, alphas):
        return entmax(scores.masked_scatter(kept, values), alphas)

    inputs = (scores[kept].requires_grad_(), alphas)
    assert torch.autograd.gradgradcheck(function, inputs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("alpha", "step"), [(1.0, 1e-4), (2.0, -1e-4)])
def test_at_the_ends_the_derivatives_of_gradients_in_alpha_are_one_sided(alpha, step):
    scores, weights = random_rows(4, 5, 1.0), random_rows(4, 5, 1.0, seed=9)

    def gradients(number, create_graph=False):
        leaf = scores.clone().requires_grad_()
        used = torch.tensor(number, dtype=torch.float64, requires_grad=True)
        loss = (entmax(leaf, used) * weights).sum()
        return used, torch.autograd.grad(loss, (leaf, used), create_graph=create_graph)

    used, ours = gradients(alpha, create_graph=True)
    here, near, far = (gradients(alpha + k * step)[1] for k in (0, 1, 2))
    for place, gradient in enumerate(ours):
        truth = (4 * near[place] - 3 * here[place] - far[place]) / (2 * step)
        flat = torch.stack(
            [
                torch.autograd.grad(number, used, retain_graph=True)[0]
                for number in gradient.reshape(-1)
            ]
        )
        assert flat.abs().max() > 0.01
        torch.testing.assert_close(flat.view(truth.shape), truth, atol=1e-5, rtol=1e-4)


@every_alpha
def test_differentiable_gradients_are_the_same_numbers(alpha):
    scores = masked_rows(8, 40)
    results = []
    for create_graph in (False, True):
        leaves = scores.clone().requires_grad_(), torch.full((8, 1), alpha).requires_grad_()
        loss = entmax(leaves[0], leaves[1].double()).pow(3).sum()
        results.append(torch.autograd.grad(loss, leaves, create_graph=create_graph))
    for plain, again in zip(*results, strict=True):
        assert again.requires_grad
        torch.testing.assert_close(again.detach(), plain, atol=1e-9, rtol=1e-9)


# -- precision, dimensions, and what is no number ---------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_in_other_precisions_it_is_that_of_float64(alpha, dtype):
    results = []
    for used in (dtype, torch.float64):
        scores = masked_rows(8, 12, dtype).to(used).requires_grad_()
        alphas = torch.full((8, 1), alpha, requires_grad=True)
        loss = entmax(scores, alphas).to(used).pow(2).sum()
        (gradient,) = torch.autograd.grad(loss, scores, create_graph=True)
        gradient.double().square().sum().backward()
        assert scores.grad.dtype == used
        results.append((scores.grad.double(), alphas.grad.double()))
    # Gradients of gradients are rounded where gradients and their losses are
    tolerance = max(2e-5, 10 * torch.finfo(dtype).eps)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_along_every_dimension(dim):
    scores = random_rows(6, 4, 1.0).view(2, 3, 4).requires_grad_()
    alpha = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        lambda z, a: entmax(z, a, dim), (scores, alpha), atol=1e-6, rtol=1e-5
    )


def test_probabilities_far_down_have_finite_second_derivatives():
    scores = torch.linspace(0.0, -700.0, 40).double().requires_grad_()
    for alpha in (1.0, 1.0001, 1.001, 1.01):
        probs = entmax(scores, alpha)
        (gradient,) = torch.autograd.grad(probs.square().sum(), scores, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), scores)
        assert second.isfinite().all()


def test_what_is_no_number_stays_in_its_row():
    scores = random_rows(3, 5, 1.0)
    scores[1, 2] = math.nan
    scores.requires_grad_()
    (gradient,) = torch.autograd.grad(entmax(scores, 1.3).pow(2).sum(), scores, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), scores)
    assert gradient[1].isnan().all()
    assert second[1].isnan().all()
    assert second[[0, 2]].isfinite().all()


# -- other ways to ask ------------------------------------------------------------------------


def test_a_jacobian_of_many_gradients_at_once_is_that_of_one_after_another():
    scores = random_rows(3, 5, 1.0)
    one, all_ = (
        functional.jacobian(lambda z: entmax(z, 1.3), scores, vectorize=vectorize)
        for vectorize in (False, True)
    )
    torch.testing.assert_close(all_, one)


def test_a_forward_mode_hessian_is_that_of_finite_differences():
    scores = random_rows(2, 3, 1.0)
    hessian = functional.hessian(
        penalty(1.3), scores, vectorize=True, outer_jacobian_strategy="forward-mode"
    )
    expected = hessian_by_differences(penalty(1.3), scores)
    torch.testing.assert_close(hessian, expected, atol=1e-6, rtol=1e-6)
