"""fusedmax, oscarmax and sq-pnorm-max in float32, on every kernel, against float64 references."""

import pytest
import torch

from fairseq_entmax.mappings import entmax, fusedmax, oscarmax
from tests.mappings.reference import random_rows
from tests.mappings.structured_cases import (
    INF,
    every_case,
    gapped_rows,
    gradients_of,
    largest_error,
    penalised,
    size_of,
    tied_rows,
)
from tests.mappings.structured_reference import change, exact_tv_row, smooth_change

LENGTHS = ((1, 1.0), (2, 1.0), (9, 0.3), (33, 4.0), (100, 1.0))


def error_of(case, scores, shape, strength):
    """Relative to the size of the scores."""
    probs = case.function(scores.float(), shape, strength)
    assert probs.dtype == torch.float32
    return largest_error(probs, case.truth(scores, shape, strength)) / size_of(scores)


# -- values -----------------------------------------------------------------------------------------


@every_case
def test_every_pair_of_parameters(case):
    for number, shape in enumerate(case.shapes):
        for strength in case.strengths:
            keys, scale = LENGTHS[number % len(LENGTHS)]
            scores = random_rows(4, keys, scale, seed=keys)
            assert error_of(case, scores, shape, strength) <= 2e-6, (shape, strength, keys)


@every_case
def test_parameters_of_each_head_and_row(case):
    scores = random_rows(2 * 6 * 3, 20, 1.0, seed=1).view(2, 6, 3, 20)
    shape = torch.tensor(case.shapes).float().view(6, 1, 1)
    strength = torch.tensor(case.strengths).float().view(6, 1, 1)
    # As float32 holds them
    assert error_of(case, scores, shape.double(), strength.double()) <= 2e-6
    assert error_of(case, scores, shape, strength) <= 2e-6
    by_row = strength.view(1, 6, 1).expand(2, 6, 1).reshape(12, 1)
    assert error_of(case, scores[:, :, 0].reshape(12, 20), case.shape, by_row) <= 2e-6


@every_case
@pytest.mark.parametrize("keys", [5, 65, 1024])
def test_ties_are_no_trap(case, keys):
    for name, scores in tied_rows(keys).items():
        for strength in case.strengths[2:3] if keys == 1024 else case.strengths[1:4]:
            assert error_of(case, scores[:2], case.shape, strength) <= 2e-6, (name, strength)


@every_case
def test_masks(case):
    scores = gapped_rows()
    for strength in case.strengths:
        probs = case.function(scores.float(), case.shape, strength)
        assert error_of(case, scores, case.shape, strength) <= 2e-6
        assert (probs[scores == -INF] == 0.0).all()
        assert probs[4, 6].item() == 1.0


@penalised
def test_a_strength_of_zero_is_entmax(case):
    for scores in (tied_rows(30)["whole numbers"].float(), gapped_rows().float()):
        for alpha in (1.0, 1.3, 2.0):
            expected = entmax(scores, alpha)
            assert torch.equal(case.function(scores, alpha, 0.0), expected)
            in_a_tensor = case.function(scores, alpha, torch.zeros(()))
            assert largest_error(in_a_tensor, expected.double()) <= 2e-7


def test_a_run_of_exact_fractions_has_one_probability_to_the_bit():
    seen = 0
    for scores in tied_rows(60).values():
        probs = fusedmax(scores[:2].float(), 0.5, 1.3).tolist()
        for row, own in zip(scores[:2].numpy(), probs, strict=True):
            exact = exact_tv_row(row, 0.5)
            joined = [key for key in range(59) if exact[key] == exact[key + 1] and own[key] > 0]
            assert all(own[key] == own[key + 1] for key in joined)
            seen += len(joined)
    assert seen > 100


def test_a_cluster_of_oscarmax_has_one_probability_to_the_bit():
    strength, seen = 0.01, 0
    for scores in tied_rows(60).values():
        probs = oscarmax(scores[0].float(), strength, 1.3)
        # Keys this near are in one cluster, as their ranks differ by one at the least
        near = (scores[0].unsqueeze(-1) - scores[0]).abs() < 0.9 * strength
        first, second = torch.where(near.triu(1) & (probs > 0))
        assert torch.equal(probs[first], probs[second])
        seen += len(first)
    assert seen > 100


# -- gradients ----------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("keys", [7, 40, 300])
def test_gradients_equal_differences_of_the_reference(case, keys):
    rows = 12
    grad, direction = (random_rows(rows, keys, 1.0, seed=seed) for seed in (2, 3))
    scores = random_rows(rows, keys, 1.0, seed=1)
    # OSCAR's adds up over pairs
    number = case.strength / keys if case.kind == "oscar" else case.strength
    shapes = torch.full((rows, 1), case.shape).double()
    strengths = torch.full((rows, 1), number).double()

    def loss(z=scores, shape=case.shape, strength=number):
        return (case.truth(z, shape, strength) * grad).sum(-1)

    ours = gradients_of(
        case.function, grad.float(), scores.float(), shapes.float(), strengths.float()
    )
    along = [
        smooth_change(lambda z: loss(z=z), scores, direction),
        smooth_change(lambda a: loss(shape=a), case.shape, 1.0, 1.0, 2.0),
        smooth_change(lambda s: loss(strength=s), number, 1.0, step=1e-7),
    ]
    ours[0] = (ours[0] * direction).sum(-1, keepdim=True)
    for gradient, (truth, smooth) in zip(ours, along, strict=True):
        assert smooth.sum() >= 9
        error = (gradient.double()[:, 0] - truth)[smooth].abs()
        # In one row of twelve rounding may decide otherwise about two keys
        assert error.sort().values[-2] <= 2e-5 * truth[smooth].abs().max().clamp(min=0.5)


@penalised
def test_the_gradient_of_a_strength_of_zero_is_one_sided(case):
    scores, grad = random_rows(8, 9, 1.0, seed=1), random_rows(8, 9, 1.0, seed=2)
    truth = change(
        lambda s: (case.truth(scores, case.shape, s) * grad).sum(-1), 0.0, 1.0, 1e-7, low=0.0
    )
    (ours,) = gradients_of(
        lambda s: case.function(scores.float(), case.shape, s), grad.float(), torch.zeros(8, 1)
    )
    assert largest_error(ours[:, 0], truth) <= 2e-5 * truth.abs().max()


@penalised
def test_masks_are_those_of_the_reference_in_gradients_too(case):
    scores, grad = gapped_rows(), random_rows(6, 12, 1.0, seed=8)
    truth, smooth = smooth_change(
        lambda s: (case.truth(scores, case.shape, s) * grad).sum(-1), case.strength, 1.0
    )
    (ours,) = gradients_of(
        lambda s: case.function(scores.float(), case.shape, s),
        grad.float(),
        torch.full((6, 1), case.strength),
    )
    assert smooth.sum() >= 5
    assert (ours.double()[:, 0] - truth)[smooth].abs().max() <= 2e-5
