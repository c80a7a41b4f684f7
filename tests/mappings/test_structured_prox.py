"""Proximal operators of total variation and OSCAR: values, masks, ties, and their gradients."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from fairseq_entmax.mappings import prox_oscar, prox_tv
from tests.mappings.reference import random_rows
from tests.mappings.structured_cases import (
    gapped_rows,
    gradients_of,
    largest_error,
    size_of,
    tied_rows,
)
from tests.mappings.structured_reference import (
    change,
    exact_tv_row,
    oscar_penalty,
    prox_oscar_rows,
    prox_tv_rows,
    smooth_change,
    total_variation,
    tv_condat,
    tv_least_squares,
)

INF = math.inf
PROXES = {
    "tv": (prox_tv, prox_tv_rows, total_variation),
    "oscar": (prox_oscar, prox_oscar_rows, oscar_penalty),
}
every_prox = pytest.mark.parametrize(("prox", "truth", "penalty"), PROXES.values(), ids=PROXES)
every_strength = pytest.mark.parametrize("strength", [0.0, 0.003, 0.1, 0.7, 4.0, 100.0, 1e6])
every_precision = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)]
)


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [0.01, 0.1, 0.5, 2.0])
def test_condat_in_fractions_and_bounded_least_squares_agree(strength):
    for keys in (1, 2, 3, 9, 30):
        for row in random_rows(4, keys, 1.0, seed=keys).tolist():
            exact = tv_condat([Fraction(score) for score in row], Fraction(strength))
            assert [float(value) for value in exact] == pytest.approx(
                tv_least_squares(row, strength).tolist(), abs=1e-12
            )


@pytest.mark.parametrize("strength", [0.003, 0.1, 0.7, 4.0])
def test_prox_tv_equals_bounded_least_squares(strength):
    for keys in (1, 2, 3, 9, 30, 60):
        scores = random_rows(3, keys, 1.0, seed=keys)
        truth = torch.tensor(np.stack([tv_least_squares(row, strength) for row in scores.numpy()]))
        assert largest_error(prox_tv(scores, strength), truth) <= 1e-12


@every_prox
@every_strength
@every_precision
def test_it_equals_the_sequential_algorithm(prox, truth, penalty, strength, dtype, tolerance):
    for keys, scale in ((1, 1.0), (2, 8.0), (7, 1.0), (30, 0.1), (33, 50.0), (128, 1.0)):
        scores = random_rows(4, keys, scale, seed=keys)
        error = largest_error(prox(scores.to(dtype), strength), truth(scores, strength))
        assert error <= tolerance * size_of(scores)


@every_prox
@pytest.mark.parametrize(
    ("keys", "strength"),
    [(2, 1.0), (17, 0.125), (130, 0.0), (130, 1.0), (130, 1e6), (300, 30.0), (1024, 0.125)],
)
@every_precision
def test_ties_are_no_trap(prox, truth, penalty, keys, strength, dtype, tolerance):
    for scores in tied_rows(keys).values():
        for row in scores[:2]:
            error = largest_error(prox(row.to(dtype), strength), truth(row, strength))
            assert error <= tolerance * size_of(scores)


@every_prox
@pytest.mark.parametrize("strength", [0.01, 0.3, 3.0])
def test_no_step_away_lowers_the_objective(prox, truth, penalty, strength):
    scores = random_rows(5, 8, 1.0)

    def objective(values):
        return 0.5 * (values - scores).square().sum(-1) + strength * penalty(values)

    best = prox(scores, strength)
    for seed in range(40):
        step = random_rows(5, 8, 10.0 ** (-seed % 5), seed=seed + 1)
        assert (objective(best) <= objective(best + step) + 1e-14).all()


def test_the_defaults_are_those_of_the_paper():
    scores = random_rows(3, 9, 1.0)
    assert torch.equal(prox_tv(scores), prox_tv(scores, 0.1))
    assert torch.equal(prox_oscar(scores), prox_oscar(scores, 0.01))


def test_prox_oscar_keeps_signs_and_joins_by_absolute_value():
    scores = torch.tensor([1.0, -1.05, 0.2, -3.0], dtype=torch.float64)
    # weights 0.3, 0.2, 0.1, 0: 2.7, then 0.85 and 0.9 joined, then 0.2
    expected = torch.tensor([0.875, -0.875, 0.2, -2.7], dtype=torch.float64)
    assert largest_error(prox_oscar(scores, 0.1), expected) <= 1e-15


def test_prox_tv_gives_a_group_of_exact_fractions_one_number_to_the_bit():
    for keys in (3, 20, 90):
        for scores in tied_rows(keys).values():
            for row in scores[:2]:
                exact = exact_tv_row(row.numpy(), 0.5)
                for dtype in (torch.float32, torch.float64):
                    ours = prox_tv(row.to(dtype), 0.5).tolist()
                    for key in range(keys - 1):
                        if exact[key] == exact[key + 1]:
                            assert ours[key] == ours[key + 1]


# -- masks, precision, shape ----------------------------------------------------------------------


@every_prox
@pytest.mark.parametrize("strength", [0.0, 0.2, 1e6])
@every_precision
def test_masked_keys_stay_masked_and_part_chains(prox, truth, penalty, strength, dtype, tolerance):
    scores = gapped_rows()
    assert largest_error(prox(scores.to(dtype), strength), truth(scores, strength)) <= tolerance


@every_prox
@pytest.mark.parametrize("bad", [math.nan, INF])
def test_what_is_no_number_shows_in_its_row_alone(prox, truth, penalty, bad):
    scores = gapped_rows()
    truth = truth(scores, 0.3)
    scores[0, 2] = bad
    values = prox(scores, 0.3)
    assert values[0, :-3].isnan().all()
    assert largest_error(values[1:], truth[1:]) <= 1e-12


@every_prox
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(prox, truth, penalty, dtype):
    scores = random_rows(5, 40, 2.0, dtype=dtype)
    values = prox(scores, 0.2)
    assert values.dtype == dtype
    assert torch.equal(values, prox(scores.float(), 0.2).to(dtype))


@every_prox
@pytest.mark.parametrize("dim", [-3, -2, 0, 1, 2])
def test_every_dimension_can_hold_the_keys(prox, truth, penalty, dim):
    scores = random_rows(6, 5, 2.0).view(2, 3, 5)
    strength = torch.tensor([0.1, 0.5]).double().view(2, 1, 1)
    strength = strength if dim not in (-3, 0) else strength[:1]
    expected = truth(scores.movedim(dim, -1), strength.movedim(dim, -1)).movedim(-1, dim)
    assert largest_error(prox(scores, strength, dim), expected) <= 1e-12


@every_prox
@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (2, 0, 3)])
def test_no_scores_give_no_values(prox, truth, penalty, shape):
    scores = torch.empty(shape, requires_grad=True)
    values = prox(scores, 0.1)
    values.sum().backward()
    assert values.shape == scores.grad.shape == shape


@every_prox
def test_the_scores_are_left_as_they_were(prox, truth, penalty):
    scores = gapped_rows()
    before = scores.clone()
    prox(scores, 0.3)
    assert torch.equal(scores, before)


# -- gradients --------------------------------------------------------------------------------------


@every_prox
@pytest.mark.parametrize("strength", [0.05, 0.4])
def test_gradcheck_holds_for_scores_and_strength(prox, truth, penalty, strength):
    scores = (random_rows(6, 5, 1.0, seed=3).view(2, 3, 5)).requires_grad_()
    strengths = torch.full((3, 1), strength, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(prox, (scores, strengths), atol=1e-6, rtol=1e-5)


@every_prox
def test_gradgradcheck_holds(prox, truth, penalty):
    scores = random_rows(4, 5, 1.0, seed=3).requires_grad_()
    strength = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)

    def function(values, strengths):
        return prox(values, strengths).pow(3)

    assert torch.autograd.gradgradcheck(function, (scores, strength), atol=1e-5, rtol=1e-4)


@every_prox
@pytest.mark.parametrize("strength", [0.0, 0.2, 2.0])
@pytest.mark.parametrize("keys", [9, 200])
def test_gradients_equal_differences_of_the_reference(prox, truth, penalty, strength, keys):
    scores, grad = random_rows(10, keys, 1.0, seed=1), random_rows(10, keys, 1.0, seed=2)
    direction = random_rows(10, keys, 1.0, seed=3)
    strengths = torch.full((10, 1), strength, dtype=torch.float64)
    for dtype, tolerance in ((torch.float64, 1e-6), (torch.float32, 2e-5)):
        for_scores, for_strength = gradients_of(
            prox, grad.to(dtype), scores.to(dtype), strengths.to(dtype)
        )
        along, smooth = smooth_change(
            lambda z: (truth(z, strength) * grad).sum(-1), scores, direction
        )
        error = ((for_scores * direction).sum(-1) - along).abs()
        assert smooth.sum() >= 6
        assert (error[smooth] <= tolerance * (1.0 + along[smooth].abs())).all()
        one = change(lambda s: (truth(scores, s) * grad).sum(-1), strength, 1.0, 1e-7, low=0.0)
        error = (for_strength[:, 0] - one).abs() / (1.0 + one.abs())
        assert error.sort().values[7] <= tolerance  # a kink in the way of a few is no fault


@every_prox
def test_masked_keys_and_rows_have_gradients_of_zero(prox, truth, penalty):
    scores = gapped_rows()
    grad = random_rows(6, 12, 1.0, seed=8)
    strength = torch.full((6, 1), 0.3, dtype=torch.float64)
    for_scores, for_strength = gradients_of(prox, grad, scores, strength)
    assert for_scores.isfinite().all()
    assert (for_scores[scores == -INF] == 0.0).all()
    assert for_strength.isfinite().all()
    assert for_strength[5].item() == 0.0


def test_ties_share_a_gradient_unless_the_strength_is_zero():
    scores, grad = torch.zeros(1, 4).double(), torch.tensor([[1.0, 2.0, 3.0, 6.0]]).double()
    assert gradients_of(lambda z: prox_tv(z, 0.1), grad, scores)[0].tolist() == [[3.0] * 4]
    assert torch.equal(gradients_of(lambda z: prox_tv(z, 0.0), grad, scores)[0], grad)
    positive = scores + 1.0
    assert gradients_of(lambda z: prox_oscar(z, 0.1), grad, positive)[0].tolist() == [[3.0] * 4]
    assert torch.equal(gradients_of(lambda z: prox_oscar(z, 0.0), grad, positive)[0], grad)
