"""fusedmax, oscarmax and sq-pnorm-max in float64: against references, and against what is optimal."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from fairseq_entmax.mappings import entmax, fusedmax, oscarmax, sparsemax, sq_pnorm_max
from tests.mappings.reference import random_rows
from tests.mappings.structured_cases import (
    CASES,
    every_case,
    gapped_rows,
    gradients_of,
    largest_error,
    size_of,
    tied_rows,
)
from tests.mappings.structured_reference import (
    bisection,
    entropy_term,
    fused_residual,
    oscar_penalty,
    oscar_prox,
    oscar_residual,
    pnorm_residual,
    total_variation,
)

ALPHAS = (1.0, 1.1, 1.33, 1.5, 1.75, 2.0)
PENALISED = {
    "fusedmax": (fusedmax, total_variation, fused_residual),
    "oscarmax": (oscarmax, oscar_penalty, oscar_residual),
}
penalised = pytest.mark.parametrize(
    ("function", "penalty", "residual"), PENALISED.values(), ids=PENALISED
)
every_alpha = pytest.mark.parametrize("alpha", ALPHAS)


def on_simplex(rows, keys, seed):
    """Random points of the simplex, most with keys of no weight."""
    points = random_rows(rows, keys, 1.0, seed=seed).clamp(min=0.0)
    points[:, seed % keys] += 0.1
    return points / points.sum(-1, keepdim=True)


# -- values -----------------------------------------------------------------------------------------


@every_case
def test_it_equals_the_reference_for_every_pair_of_parameters(case):
    for shape in case.shapes:
        for strength in case.strengths:
            for keys, scale in ((1, 1.0), (2, 1.0), (9, 0.3), (40, 4.0)):
                scores = random_rows(3, keys, scale, seed=keys)
                error = largest_error(
                    case.function(scores, shape, strength), case.truth(scores, shape, strength)
                )
                assert error <= 1e-12 * size_of(scores), (shape, strength, keys)


@every_case
@pytest.mark.parametrize("keys", [5, 64, 1024])
def test_ties_are_no_trap(case, keys):
    for scores in tied_rows(keys).values():
        for strength in case.strengths[2:3] if keys == 1024 else case.strengths[1:4]:
            probs = case.function(scores[:2], case.shape, strength)
            error = largest_error(probs, case.truth(scores[:2], case.shape, strength))
            assert error <= 1e-12 * size_of(scores)


@every_case
def test_masks_are_those_of_the_reference(case):
    for shape in (case.shapes[0], case.shape, 2.0):
        for strength in case.strengths:
            scores = gapped_rows()
            probs = case.function(scores, shape, strength)
            assert largest_error(probs, case.truth(scores, shape, strength)) <= 1e-12
            assert (probs[scores == -torch.inf] == 0.0).all()


def test_the_defaults_are_those_of_the_paper():
    scores = random_rows(3, 9, 1.0)
    assert torch.equal(fusedmax(scores), fusedmax(scores, 0.1, 2.0))
    assert torch.equal(oscarmax(scores), oscarmax(scores, 0.01, 2.0))
    assert torch.equal(sq_pnorm_max(scores), sq_pnorm_max(scores, 1.5, 1.0))


def test_a_strength_of_zero_is_exactly_entmax():
    for scores in (*tied_rows(30).values(), gapped_rows()):
        for alpha in ALPHAS:
            expected = entmax(scores, alpha)
            for function in (fusedmax, oscarmax):
                assert torch.equal(function(scores, 0.0, alpha), expected)
                assert torch.equal(function(scores, 0, alpha), expected)
                # Sorted scores are added up in another order
                in_a_tensor = function(scores, torch.zeros(()), alpha)
                assert largest_error(in_a_tensor, expected) <= 1e-15


def test_sq_pnorm_max_of_two_and_one_is_sparsemax():
    for scores in (*tied_rows(30).values(), gapped_rows()):
        assert largest_error(sq_pnorm_max(scores, 2.0, 1.0), sparsemax(scores)) <= 1e-14


# -- the regularised argmax: entmax after prox, for every alpha ------------------------------------


@penalised
@every_alpha
def test_no_feasible_step_improves_the_objective(function, penalty, residual, alpha):
    scores = random_rows(6, 7, 2.0, seed=4)
    for strength in (0.01, 0.1, 0.5):
        best = function(scores, strength, alpha)

        def objective(probs, strength=strength):
            gain = (scores * probs).sum(-1) - entropy_term(probs, alpha)
            return gain - strength * penalty(probs)

        for seed in range(25):
            toward = on_simplex(6, 7, seed)
            for far in (1.0, 0.1, 1e-3):
                moved = (1 - far) * best + far * toward
                assert (objective(moved) <= objective(best) + 1e-14).all()


@penalised
@every_alpha
def test_the_optimality_conditions_hold(function, penalty, residual, alpha):
    for keys, scale in ((2, 1.0), (6, 0.3), (9, 2.0), (30, 1.0)):
        for strength in (0.003, 0.05, 0.3, 3.0):
            scores = random_rows(3, keys, scale, seed=keys)
            for row, probs in zip(scores, function(scores, strength, alpha), strict=True):
                assert residual(row, probs, strength, alpha) <= 1e-11 * size_of(scores)


@penalised
@every_alpha
def test_the_conditions_tell_entmax_alone_apart(function, penalty, residual, alpha):
    row = random_rows(1, 8, 0.5, seed=2)[0]
    assert residual(row, entmax(row, alpha), 0.05, alpha) > 1e-3


@pytest.mark.parametrize("gamma", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("p", [1.05, 1.2, 1.5, 1.9, 2.0])
def test_the_optimality_conditions_of_sq_pnorm_max_hold(p, gamma):
    for keys, scale in ((2, 1.0), (9, 2.0), (64, 0.2)):
        scores = random_rows(5, keys, scale, seed=keys)
        assert pnorm_residual(scores, sq_pnorm_max(scores, p, gamma), p, gamma) <= 1e-11


def solved_by_a_general_solver(row, strength, bounds_of):
    """``argmin 1/2 |p - x|^2 + strength * sum of bounds`` over the simplex and bounds.

    ``bounds_of(p)`` is what the bounds may not be below, a row for each way to be below.
    """
    count = len(row)
    bounds = bounds_of(row).shape[-1]
    found = minimize(
        lambda v: 0.5 * ((v[:count] - row) ** 2).sum() + strength * v[count:].sum(),
        np.concatenate([np.full(count, 1.0 / count), np.full(bounds, 0.5)]),
        method="SLSQP",
        bounds=[(0.0, None)] * (count + bounds),
        constraints=[
            {"type": "eq", "fun": lambda v: v[:count].sum() - 1.0},
            {"type": "ineq", "fun": lambda v: (v[count:] - bounds_of(v[:count])).ravel()},
        ],
        options={"maxiter": 500, "ftol": 1e-15},
    )
    return torch.tensor(found.x[:count])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PENALISED)
def test_a_quadratic_programme_finds_the_same(name, seed):
    row, strength = 0.5 * random_rows(1, 5, 1.0, seed=seed)[0].numpy(), 0.08
    first, second = np.triu_indices(5, 1)

    def bounds_of(probs):
        if name == "oscarmax":
            return np.stack([probs[first], probs[second]])
        return np.stack([np.diff(probs), -np.diff(probs)])

    truth = solved_by_a_general_solver(row, strength, bounds_of)
    ours = PENALISED[name][0](torch.tensor(row), strength)
    assert largest_error(ours, truth) <= 1e-6


# -- Proposition 2 of the paper, and its program ---------------------------------------------------

COUNTEREXAMPLES = {
    "mixed signs": ((0.5, 0.1, -0.3), (17 / 30, 11 / 30, 2 / 30), (19 / 30, 10 / 30, 1 / 30)),
    # no score is negative: the clip at zero of the prox is what the paper's composition trips on
    "small scores": ((0.3, 0.0, 0.0), (0.4, 0.3, 0.3), (26 / 60, 17 / 60, 17 / 60)),
}


@pytest.mark.parametrize(("row", "literal", "best"), COUNTEREXAMPLES.values(), ids=COUNTEREXAMPLES)
def test_proposition_2_of_the_paper_is_not_what_oscarmax_solves(row, literal, best):
    row = torch.tensor(row, dtype=torch.float64)
    literal, best = (torch.tensor(probs, dtype=torch.float64) for probs in (literal, best))
    composed = bisection(torch.tensor(oscar_prox(row.numpy(), 0.1)), 2.0)
    assert largest_error(composed, literal) <= 1e-12
    ours = oscarmax(row, 0.1)
    assert largest_error(ours, best) <= 1e-12

    def objective(probs):
        return 0.5 * probs.square().sum() + 0.1 * oscar_penalty(probs) - (row * probs).sum()

    assert objective(ours) < objective(literal) - 5e-4


def test_the_objectives_of_the_counterexample_are_those_worked_out_by_hand():
    row = torch.tensor([0.5, 0.1, -0.3], dtype=torch.float64)
    for probs, value in (((17, 11, 2), 0.0800), ((19, 10, 1), 0.23 / 3)):
        probs = torch.tensor(probs, dtype=torch.float64) / 30
        objective = 0.5 * probs.square().sum() + 0.1 * oscar_penalty(probs) - (row * probs).sum()
        assert objective.item() == pytest.approx(value, abs=1e-12)


def test_a_grid_over_the_simplex_holds_nothing_better_than_the_counterexample():
    row = torch.tensor([0.5, 0.1, -0.3], dtype=torch.float64)
    first, second = torch.meshgrid(*[torch.arange(121).double() / 120] * 2, indexing="ij")
    probs = torch.stack([first, second, 1.0 - first - second], -1)
    probs = probs[probs[..., 2] >= 0.0]
    objective = 0.5 * probs.square().sum(-1) + 0.1 * oscar_penalty(probs) - probs @ row
    assert (probs[objective.argmin()] - oscarmax(row, 0.1)).abs().max() <= 1 / 120


# What torchsparseattn 0.2 (its Cython, compiled for float64) returns: scores, incoming gradient,
# then for fusedmax at 0.1 and oscarmax at 0.02 the probabilities and the gradient of the scores.
# The scores are large enough that its OSCAR clips nothing at zero.
TORCHSPARSEATTN = [
    (
        [2.0, 2.09, 2.08, 2.27, 2.14],
        [-0.99, 0.06, 1.34, -0.49, -0.62],
        [0.174, 0.174, 0.174, 0.239, 0.239],
        [0.83 / 3, 0.83 / 3, 0.83 / 3, -0.415, -0.415],
        [0.124, 0.179, 0.179, 0.314, 0.204],
        [-0.85, 0.84, 0.84, -0.35, -0.48],
    ),
    (
        [2.15, 2.11, 2.03, 2.28, 2.01, 2.21, 2.4],
        [-0.46, -1.9, -1.29, -1.84, -0.24, -1.27, 0.27],
        [0.72 / 7, 0.72 / 7, 0.72 / 7, 0.825 / 7, 0.825 / 7, 1.28 / 7, 1.91 / 7],
        [-5.36 / 21] * 3 + [-0.55 / 7] * 2 + [-2.16 / 7, 8.62 / 7],
        [0.86 / 7, 0.72 / 7, 0.3 / 7, 1.49 / 7, 0.3 / 7, 1.14 / 7, 2.19 / 7],
        [3.51 / 7, -6.57 / 7, 1.375 / 7, -6.15 / 7, 1.375 / 7, -2.16 / 7, 8.62 / 7],
    ),
    (
        [2.02, 2.03, 2.38, 2.08, 2.01, 2.02, 2.23, 2.07],
        [-0.98, -0.81, 1.06, -0.81, -0.03, 0.88, -0.58, -0.11],
        [0.095] * 2 + [0.2] + [0.122] * 5,
        [-0.7225] * 2 + [1.2325] + [0.0425] * 5,
        [0.47 / 6] * 2 + [0.33] + [0.47 / 6] * 3 + [0.2, 0.47 / 6],
        [-0.1375] * 2 + [1.2325] + [-0.1375] * 3 + [-0.4075, -0.1375],
    ),
]


@pytest.mark.parametrize("row", TORCHSPARSEATTN, ids=["5 keys", "7 keys", "8 keys"])
def test_torchsparseattn_gives_the_same_where_no_score_is_negative(row):
    scores, grad, *expected = (torch.tensor(numbers, dtype=torch.float64) for numbers in row)
    for name, strength, probs, gradient in (
        ("fusedmax", 0.1, *expected[:2]),
        ("oscarmax", 0.02, *expected[2:]),
    ):
        function = CASES[name].function
        assert largest_error(function(scores, 2.0, strength), probs) <= 1e-12
        (ours,) = gradients_of(lambda z, f=function, s=strength: f(z, 2.0, s), grad, scores)
        assert largest_error(ours, gradient) <= 1e-12
