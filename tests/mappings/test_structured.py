"""fusedmax, oscarmax and sq-pnorm-max: references, optimality conditions, and gradients."""

import pytest
import torch

from fairseq_entmax.mappings import entmax, fusedmax, oscarmax, sparsemax, sq_pnorm_max
from fairseq_entmax.mappings.functional import map_structured
from tests.mappings.reference import random_rows
from tests.mappings.structured_cases import (
    CASES,
    INF,
    NAN,
    every_case,
    gapped_rows,
    gradients_of,
    largest_error,
    size_of,
    tied_rows,
)
from tests.mappings.structured_reference import (
    entropy_term,
    exact_tv_row,
    oscar_penalty,
    total_variation,
)

ALPHAS = (1.0, 1.1, 1.33, 1.5, 1.75, 2.0)
PENALISED = {"fusedmax": (fusedmax, total_variation), "oscarmax": (oscarmax, oscar_penalty)}
with_penalty = pytest.mark.parametrize(("function", "penalty"), PENALISED.values(), ids=PENALISED)
every_alpha = pytest.mark.parametrize("alpha", ALPHAS)


# -- values ----------------------------------------------------------------------------------------


@every_case
def test_values_match_the_reference_for_every_pair_of_parameters(case):
    for shape in case.shapes:
        for strength in case.strengths:
            for keys, scale in ((1, 1.0), (2, 1.0), (9, 0.3), (40, 4.0)):
                scores = random_rows(3, keys, scale, seed=keys)
                truth = case.truth(scores, shape, strength)
                for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
                    error = largest_error(case.function(scores.to(dtype), shape, strength), truth)
                    assert error <= tolerance * size_of(scores), (shape, strength, keys)


@every_case
@pytest.mark.parametrize("keys", [5, 64, 300])
def test_ties_match_the_reference(case, keys):
    for name, scores in tied_rows(keys).items():
        for strength in case.strengths[2:3] if keys == 300 else case.strengths[1:4]:
            probs = case.function(scores[:2], case.shape, strength)
            error = largest_error(probs, case.truth(scores[:2], case.shape, strength))
            assert error <= 1e-12 * size_of(scores), (name, strength)


@every_case
def test_masked_keys_match_the_reference(case):
    for shape in (case.shapes[0], case.shape, 2.0):
        for strength in case.strengths:
            scores = gapped_rows()
            probs = case.function(scores, shape, strength)
            assert largest_error(probs, case.truth(scores, shape, strength)) <= 1e-12
            assert (probs[scores == -INF] == 0.0).all()


def test_defaults_and_limit_cases_match_known_mappings():
    scores = random_rows(3, 9, 1.0)
    assert torch.equal(fusedmax(scores), fusedmax(scores, 0.1, 2.0))
    assert torch.equal(oscarmax(scores), oscarmax(scores, 0.01, 2.0))
    assert torch.equal(sq_pnorm_max(scores), sq_pnorm_max(scores, 1.5, 1.0))
    for rows in (*tied_rows(30).values(), gapped_rows()):
        assert largest_error(sq_pnorm_max(rows, 2.0, 1.0), sparsemax(rows)) <= 1e-14
        for alpha in ALPHAS:
            expected = entmax(rows, alpha)
            for function in (fusedmax, oscarmax):
                assert torch.equal(function(rows, 0.0, alpha), expected)
                # Sorted scores are summed in another order
                assert largest_error(function(rows, torch.zeros(()), alpha), expected) <= 1e-15
    large = torch.tensor([3e38, -3e38, 3e38])
    for case in CASES.values():
        assert case.function(large, 1.5, 0.5).tolist() == pytest.approx([0.5, 0, 0.5], abs=1e-6)


def test_rows_that_are_solved_first_stay_solved(monkeypatch):
    # Alone, such rows take up to six steps
    monkeypatch.setattr("fairseq_entmax.kernels.torch_pnorm.MOST_STEPS", 10)
    scores, case = random_rows(3000, 16, 1.0), CASES["sq_pnorm_max"]
    assert largest_error(sq_pnorm_max(scores), case.truth(scores, 1.5, 1.0)) <= 1e-12


def test_grouped_keys_have_bitwise_equal_probabilities():
    runs = clusters = 0
    for scores in tied_rows(60).values():
        probs = fusedmax(scores[:2].float(), 0.5, 1.3).tolist()
        for row, own in zip(scores[:2].numpy(), probs, strict=True):
            exact = exact_tv_row(row, 0.5)
            joined = [key for key in range(59) if exact[key] == exact[key + 1] and own[key] > 0]
            assert all(own[key] == own[key + 1] for key in joined)
            runs += len(joined)
        probs = oscarmax(scores[0].float(), 0.01, 1.3)
        # Such close keys are in one cluster, because their ranks differ by at least one
        near = (scores[0].unsqueeze(-1) - scores[0]).abs() < 0.009
        first, second = torch.where(near.triu(1) & (probs > 0))
        assert torch.equal(probs[first], probs[second])
        clusters += len(first)
    assert min(runs, clusters) > 100


# -- the regularised argmax: entmax after prox, for every alpha ------------------------------------


@with_penalty
@every_alpha
def test_no_feasible_step_improves_the_objective(function, penalty, alpha):
    scores = random_rows(6, 7, 2.0, seed=4)
    for strength in (0.01, 0.5):
        best = function(scores, strength, alpha)

        def objective(probs, strength=strength):
            gain = (scores * probs).sum(-1) - entropy_term(probs, alpha)
            return gain - strength * penalty(probs)

        for seed in range(15):
            toward = random_rows(6, 7, 1.0, seed=seed).clamp(min=0.0)
            toward[:, seed % 7] += 0.1
            toward /= toward.sum(-1, keepdim=True)
            for far in (1.0, 0.1, 1e-3):
                moved = (1 - far) * best + far * toward
                assert (objective(moved) <= objective(best) + 1e-14).all()


# -- gradients -------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize(("shape", "scale"), [((), 0.3), ((2, 1), 1.5), ((2, 2, 1), 0.3)])
def test_gradcheck_holds_for_scores_and_both_parameters(case, shape, scale):
    scores = random_rows(4, 5, scale, seed=1).view(2, 2, 5).requires_grad_()
    inputs = (scores, *(torch.full(shape, x).double().requires_grad_() for x in case[-2:]))
    assert torch.autograd.gradcheck(case.function, inputs, atol=1e-6, rtol=1e-5)
    assert torch.autograd.gradgradcheck(case.function, inputs, atol=1e-5, rtol=1e-4)


@every_case
@pytest.mark.parametrize(("rows", "keys"), [(12, 7), (3, 40)])
def test_gradcheck_holds_for_longer_rows(case, rows, keys):
    # OSCAR's penalty sums over pairs
    strength = case.strength / keys if case.structure == "oscar" else case.strength
    values = (torch.full((rows, 1), x).double().requires_grad_() for x in (case.shape, strength))
    inputs = (random_rows(rows, keys, 1.0, seed=1).requires_grad_(), *values)
    assert torch.autograd.gradcheck(case.function, inputs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("case", [CASES[name] for name in PENALISED], ids=PENALISED)
def test_the_gradient_at_strength_zero_is_one_sided(case):
    tied = torch.tensor([[1, 1, 0.7, 0.7, 0.2, 0.2, -3, -3, -3]] * 2).double()
    for scores in (random_rows(8, 9, 1.0, seed=1), gapped_rows(9), tied):
        grad = random_rows(len(scores), 9, 1.0, seed=2)
        here, near, far = (
            (case.truth(scores, case.shape, s) * grad).sum(-1) for s in (0.0, 1e-7, 2e-7)
        )
        truth = (4 * near - 3 * here - far) / 2e-7
        zeros = torch.zeros(len(scores), 1).double()
        (ours,) = gradients_of(lambda s, z=scores: case.function(z, case.shape, s), grad, zeros)
        assert largest_error(ours[:, 0], truth) <= 2e-5 * truth.abs().max()


# -- NaN, dimensions, errors ---------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("harmed", [1, 2])
def test_a_nan_parameter_affects_only_its_rows(case, harmed):
    scores = gapped_rows()
    values = [torch.full((6, 1), x).double() for x in (case.shape - 1.0, case.strength)]
    values[harmed - 1][1] = NAN
    grad = random_rows(6, 12, 1.0)
    found = gradients_of(lambda z, *p: map_structured(z, case.structure, *p), grad, scores, *values)
    assert found[0][1].isnan().all()
    assert found[harmed][1].isnan()
    for result in found:
        assert result[[0, 2, 3, 4, 5]].isfinite().all()


@every_case
def test_parameters_broadcast_along_the_dimension_of_the_keys(case):
    scores = random_rows(2 * 3, 5, 1.0).view(2, 3, 5)
    share = torch.rand(2, 1, 5, dtype=torch.float64)
    values = (1.1 + 0.8 * share, 0.05 + share)
    moved = [value.movedim(1, -1) for value in (scores, *values)]
    truth = case.truth(*moved).movedim(-1, 1)
    assert largest_error(case.function(scores, *values, 1), truth) <= 1e-12


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z: fusedmax(z, -1.0), "tv must be a number from 0 to 1e30, not -1.0"),
        (lambda z: oscarmax(z, NAN), "oscar must be a number from 0 to 1e30, not nan"),
        (lambda z: sq_pnorm_max(z, 1.0), "p must be a number above 1, up to 2 .* not 1.0"),
        (lambda z: sq_pnorm_max(z, 1.5, 0.0), "gamma must be a number above 0, .* not 0.0"),
        (lambda z: fusedmax(z, torch.tensor([[0.1], [-2.0]])), "tv must be .* not -2.0"),
        (lambda z: fusedmax(z, torch.ones(3, 1)), r"tv of shape \(3, 1\) does not broadcast"),
    ],
)
def test_invalid_arguments_are_refused(function, message):
    with pytest.raises(ValueError, match=message):
        function(torch.zeros(2, 4))
