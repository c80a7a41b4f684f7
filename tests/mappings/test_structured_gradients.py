"""Gradients of the mappings with structure in float64: checked by torch, and at their ends."""

import pytest
import torch

from fairseq_entmax.kernels.structure import Structure
from fairseq_entmax.mappings import entmax, oscarmax, sparsemax, sq_pnorm_max
from fairseq_entmax.mappings.structured import map_structured
from tests.mappings.reference import random_rows
from tests.mappings.structured_cases import (
    INF,
    NAN,
    every_case,
    gapped_rows,
    gradients_of,
    penalised,
    tied_rows,
)


def parameters(case, shape=()):
    """Alpha or p, and the strength, that require gradients."""
    values = (case.shape, case.strength)
    return tuple(
        torch.full(shape, value, dtype=torch.float64, requires_grad=True) for value in values
    )


# -- all together -------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize(("shape", "scale"), [((), 0.3), ((3, 1), 1.5), ((2, 3, 1), 0.3)])
def test_gradcheck_holds_for_scores_and_both_parameters(case, shape, scale):
    scores = random_rows(6, 5, scale, seed=1).view(2, 3, 5).requires_grad_()
    inputs = (scores, *parameters(case, shape))
    assert torch.autograd.gradcheck(case.function, inputs, atol=1e-6, rtol=1e-5)


@every_case
@pytest.mark.parametrize(("shape", "strength"), [(1.15, 0.05), (1.5, 0.6), (1.9, 0.01)])
def test_gradcheck_holds_for_other_parameters(case, shape, strength):
    scores = random_rows(3, 7, 0.4, seed=2).requires_grad_()
    inputs = (
        scores,
        *(torch.tensor(value).double().requires_grad_() for value in (shape, strength)),
    )
    assert torch.autograd.gradcheck(case.function, inputs, atol=1e-6, rtol=1e-5)


@every_case
def test_gradcheck_holds_beside_masked_keys(case):
    scores = gapped_rows(8)
    kept = scores > -INF
    inputs = (scores[kept].requires_grad_(), *parameters(case, (6, 1)))

    def function(values, *parameters):
        return case.function(scores.masked_scatter(kept, values), *parameters)

    assert torch.autograd.gradcheck(function, inputs, atol=1e-6, rtol=1e-5)


@every_case
@pytest.mark.parametrize("dim", [0, 1, -2])
def test_gradcheck_holds_along_every_dimension(case, dim):
    scores = random_rows(6, 4, 0.5, seed=3).view(2, 3, 4).requires_grad_()
    inputs = (scores, *parameters(case))
    assert torch.autograd.gradcheck(
        lambda z, *parameters: case.function(z, *parameters, dim), inputs, atol=1e-6, rtol=1e-5
    )


@penalised
@pytest.mark.parametrize("alpha", [1.2, 1.5])
def test_tied_scores_move_together_where_they_are_penalised(case, alpha):
    # Numbers that are equal stay so within the strength: no kink there
    scores = torch.tensor([[0.0, 0.0, 0.0, 1.0, 1.0], [0.5] * 5, [1.0, 0.0, 0.0, 0.0, 1.0]])
    inputs = (
        scores.double().requires_grad_(),
        *(torch.tensor(value).double().requires_grad_() for value in (alpha, 0.03)),
    )
    assert torch.autograd.gradcheck(case.function, inputs, atol=1e-6, rtol=1e-5)


@every_case
def test_gradgradcheck_holds_for_scores_and_both_parameters(case):
    scores = random_rows(3, 5, 0.5, seed=4).view(1, 3, 5).requires_grad_()
    inputs = (scores, *parameters(case, (3, 1)))
    assert torch.autograd.gradgradcheck(case.function, inputs, atol=1e-5, rtol=1e-4)


@every_case
def test_gradgradcheck_holds_beside_masked_keys(case):
    scores = gapped_rows(6)[1:]
    kept = scores > -INF
    inputs = (scores[kept].requires_grad_(), *parameters(case))

    def function(values, *parameters):
        return case.function(scores.masked_scatter(kept, values), *parameters)

    assert torch.autograd.gradgradcheck(function, inputs, atol=1e-5, rtol=1e-4)


@every_case
def test_differentiable_gradients_are_the_same_numbers(case):
    scores, grad = random_rows(4, 9, 1.0, seed=1), random_rows(4, 9, 1.0, seed=2)
    results = []
    for create_graph in (False, True):
        leaves = [scores.clone().requires_grad_(), *parameters(case, (4, 1))]
        loss = (case.function(*leaves) * grad).sum()
        results.append(torch.autograd.grad(loss, leaves, create_graph=create_graph))
    for plain, recorded in zip(*results, strict=True):
        torch.testing.assert_close(plain, recorded, atol=1e-13, rtol=1e-12)


# -- each of them -------------------------------------------------------------------------------------


@every_case
def test_each_gradient_comes_alone_if_only_one_is_asked_for(case):
    scores, grad = gapped_rows(), random_rows(6, 12, 1.0, seed=2)
    values = (scores, *(value.detach() for value in parameters(case, (6, 1))))
    together = gradients_of(case.function, grad, *values)
    for place, expected in enumerate(together):
        leaves = [value.clone() for value in values]
        leaves[place].requires_grad_()
        case.function(*leaves).backward(grad)
        assert torch.equal(leaves[place].grad, expected)
    numbers = [case.shape, case.strength]
    (ours,) = gradients_of(lambda z: case.function(z, *numbers), grad, scores)
    torch.testing.assert_close(ours, together[0], atol=1e-14, rtol=1e-12)


@every_case
@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (2, 1, 1), (2, 3, 1)])
def test_a_parameter_gets_the_sum_over_the_rows_that_share_it(case, shape):
    scores = random_rows(6, 7, 1.0, seed=1).view(2, 3, 7)
    grad = random_rows(6, 7, 1.0, seed=2).view(2, 3, 7)
    apart = gradients_of(
        case.function, grad, scores, *(p.detach() for p in parameters(case, (2, 3, 1)))
    )
    shared = gradients_of(
        case.function, grad, scores, *(p.detach() for p in parameters(case, shape))
    )
    for rows, ours in zip(apart[1:], shared[1:], strict=True):
        assert ours.shape == shape
        assert ours.abs().max() > 0.0
        torch.testing.assert_close(ours, rows.sum_to_size(shape), atol=1e-13, rtol=1e-12)


@every_case
def test_gradients_have_the_dtype_of_what_they_are_for(case):
    scores = random_rows(3, 8, 1.0, dtype=torch.bfloat16).requires_grad_()
    shape = torch.full((3, 1), case.shape, dtype=torch.float64, requires_grad=True)
    strength = torch.tensor(case.strength, dtype=torch.float32, requires_grad=True)
    case.function(scores, shape, strength)[:, 0].sum().backward()
    assert [leaf.grad.dtype for leaf in (scores, shape, strength)] == [
        torch.bfloat16,
        torch.float64,
        torch.float32,
    ]


# -- ends ------------------------------------------------------------------------------------------------


@penalised
@pytest.mark.parametrize("alpha", [1.0, 1.3, 2.0])
def test_a_strength_of_zero_has_the_gradients_of_entmax(case, alpha):
    for scores in (*tied_rows(20).values(), gapped_rows(20)):
        grad = random_rows(*scores.shape, 1.0, seed=2)
        alphas = torch.full((len(scores), 1), alpha, dtype=torch.float64)
        expected = gradients_of(entmax, grad, scores, alphas)
        for zero in (0.0, torch.zeros(()), torch.zeros(len(scores), 1)):
            ours = gradients_of(
                lambda z, a, zero=zero: case.function(z, a, zero), grad, scores, alphas
            )
            for one, other in zip(ours, expected, strict=True):
                torch.testing.assert_close(one, other, atol=1e-13, rtol=1e-11)


@penalised
def test_a_head_of_strength_zero_beside_others_has_the_gradients_of_entmax(case):
    scores = tied_rows(20)["whole numbers"][:3]
    grad = random_rows(3, 20, 1.0, seed=2)
    strength = torch.tensor([[0.1], [0.0], [0.2]], dtype=torch.float64)
    probs = case.function(scores, 1.3, strength)
    torch.testing.assert_close(probs[1], entmax(scores[1], 1.3), atol=1e-15, rtol=1e-13)
    (ours,) = gradients_of(lambda z: case.function(z, 1.3, strength), grad, scores)
    (expected,) = gradients_of(lambda z: entmax(z, 1.3), grad, scores)
    torch.testing.assert_close(ours[1], expected[1], atol=1e-13, rtol=1e-11)
    assert (ours[[0, 2]] - expected[[0, 2]]).abs().max() > 0.01


def test_sq_pnorm_max_of_two_and_one_has_the_gradients_of_sparsemax():
    for scores in (*tied_rows(20).values(), gapped_rows(20)):
        grad = random_rows(*scores.shape, 1.0, seed=2)
        (ours,) = gradients_of(lambda z: sq_pnorm_max(z, 2.0, 1.0), grad, scores)
        (expected,) = gradients_of(sparsemax, grad, scores)
        torch.testing.assert_close(ours, expected, atol=1e-13, rtol=1e-11)


@every_case
def test_the_gradient_of_the_scores_sums_to_zero(case):
    for scores in (*tied_rows(40).values(), gapped_rows()):
        grad = random_rows(*scores.shape, 1.0, seed=2)
        for strength in case.strengths[1:]:
            (ours,) = gradients_of(
                lambda z, s=strength: case.function(z, case.shape, s), grad, scores
            )
            assert ours.isfinite().all()
            assert ours.sum(-1).abs().max().item() <= 1e-11 * (1.0 + ours.abs().max().item())


@penalised
def test_a_strength_beyond_all_differences_has_no_gradients(case):
    scores, grad = random_rows(4, 9, 1.0, seed=1), random_rows(4, 9, 1.0, seed=2)
    strength = torch.tensor(1e6, dtype=torch.float64)
    for_scores, for_strength = gradients_of(
        lambda z, s: case.function(z, 1.4, s), grad, scores, strength
    )
    assert for_scores.abs().max().item() <= 1e-14
    assert abs(for_strength.item()) <= 1e-12


def test_rounding_leaves_next_to_no_gradient_of_oscar_where_all_keys_are_one_cluster():
    # It is the sum of a thousand ranks times what is moved, which sums to 0
    scores, grad = random_rows(8, 1024, 1.0, seed=1), random_rows(8, 1024, 1.0, seed=2)
    (ours,) = gradients_of(
        lambda s: oscarmax(scores.float(), s), grad.float(), torch.full((8, 1), 10.0)
    )
    assert ours.abs().max().item() <= 1e-6


# -- what is no number --------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("harmed", ["shape", "strength"])
def test_a_parameter_that_is_nan_shows_in_its_head_alone(case, harmed):
    scores = gapped_rows().view(1, 6, 12).repeat(3, 1, 1)
    grad = random_rows(18, 12, 1.0).view(3, 6, 12)
    rows = (scores > -INF).any(-1)[1]
    results = []
    for bad in (NAN, None):
        values = {"shape": case.shape - 1.0, "strength": case.strength}
        tensors = {name: torch.full((3, 1, 1), value).double() for name, value in values.items()}
        if bad is not None:
            tensors[harmed][1] = bad

        def function(z, epsilon, strength):
            return map_structured(z, Structure(case.kind, epsilon, strength))

        inputs = (scores, tensors["shape"], tensors["strength"])
        results.append([function(*inputs), *gradients_of(function, grad, *inputs)])
    place = {"shape": 2, "strength": 3}[harmed]
    (probs, for_scores, *of_parameters), clean = results
    for tensor in (probs, for_scores):
        assert tensor[1][rows].isnan().all()
        assert (tensor[1][~rows] == 0).all()
    assert of_parameters[place - 2][1].isnan().all()
    for ours, expected in zip(results[0], clean, strict=True):
        torch.testing.assert_close(ours[[0, 2]], expected[[0, 2]], atol=1e-13, rtol=1e-12)


@every_case
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("place", ["largest", "without weight", "masked row"])
def test_a_gradient_that_is_no_number_leaves_none_in_its_row(case, bad, place):
    scores = 3.0 * random_rows(3, 9, 1.0, seed=1)
    grad = random_rows(3, 9, 1.0, seed=2)
    values = (scores, *(value.detach() for value in parameters(case, (3, 1))))
    probs = case.function(*values)[1]
    assert (probs == 0).any()
    grad[1, probs.argmax() if place == "largest" else probs.argmin()] = bad
    if place == "masked row":
        scores[1] = -INF
        values = values[:1]
    numbers = () if place != "masked row" else (case.shape, case.strength)
    for gradient in gradients_of(lambda *leaves: case.function(*leaves, *numbers), grad, *values):
        assert not gradient[1].isfinite().any()
        assert gradient[[0, 2]].isfinite().all()
