"""The mappings with structure in float32, on every kernel: ends, masks, what is no number."""

import pytest
import torch

from fairseq_entmax.mappings import sq_pnorm_max
from tests.mappings.reference import random_rows
from tests.mappings.structured_cases import (
    CASES,
    INF,
    NAN,
    every_case,
    gapped_rows,
    gradients_of,
    largest_error,
    penalised,
)
from tests.mappings.structured_reference import smooth_change


@penalised
def test_scores_as_large_as_float32_holds_do_not_overflow(case):
    probs = case.function(torch.tensor([[3e38, -3e38, 3e38], [-3e38, -3e38, -3e38]]), 1.5, 0.1)
    assert probs[0].tolist() == pytest.approx([0.5, 0.0, 0.5], abs=1e-6)
    assert probs[1].tolist() == pytest.approx([1 / 3] * 3, abs=1e-6)


def test_sq_pnorm_max_of_large_scores_does_not_overflow():
    probs = sq_pnorm_max(torch.tensor([3e38, -3e38, 3e38]), 1.5, 1.0)
    assert probs.tolist() == pytest.approx([0.5, 0.0, 0.5], abs=1e-6)


ENDS = [("fusedmax", 1.0), ("fusedmax", 2.0), ("oscarmax", 1.0), ("oscarmax", 2.0)]


@pytest.mark.parametrize(("name", "end"), [*ENDS, ("sq_pnorm_max", 2.0)])
def test_gradients_at_the_ends_of_the_range_are_one_sided(name, end):
    case = CASES[name]
    scores, grad = random_rows(8, 9, 1.0, seed=1), random_rows(8, 9, 1.0, seed=2)
    truth, smooth = smooth_change(
        lambda a: (case.truth(scores, a, case.strength) * grad).sum(-1), end, 1.0, 1.0, 2.0, 1e-5
    )
    shapes = torch.full((8, 1), end)
    (ours,) = gradients_of(
        lambda a: case.function(scores.float(), a, case.strength), grad.float(), shapes
    )
    error = (ours.double()[:, 0] - truth).abs()
    assert smooth.sum() >= 4
    assert error[smooth].max() <= 2e-5 * truth.abs().max().clamp(min=0.1)


@every_case
def test_masked_keys_and_rows_have_gradients_of_zero(case):
    scores, grad = gapped_rows().float(), random_rows(6, 12, 1.0, seed=8).float()
    shapes, strengths = torch.full((6, 1), case.shape), torch.full((6, 1), case.strength)
    for_scores, *rows = gradients_of(case.function, grad, scores, shapes, strengths)
    assert (for_scores[scores == -INF] == 0.0).all()
    assert for_scores.isfinite().all()
    for gradient in rows:
        assert gradient.isfinite().all()
        # a single key, and none
        assert gradient[4:].abs().max().item() <= 1e-7
        assert gradient[5].item() == 0.0
        assert (gradient[:4] != 0.0).any()


@every_case
@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_score_that_is_no_number_makes_its_row_nan_and_no_other(case, bad):
    clean = gapped_rows()
    scores = clean.clone()
    scores[2, 7] = bad
    probs = case.function(scores.float(), case.shape, case.strength)
    assert probs[2].isnan().all()
    probs[2] = 0.0
    truth = case.truth(clean, case.shape, case.strength)
    truth[2] = 0.0
    assert largest_error(probs, truth) <= 2e-6
    (gradient,) = gradients_of(
        lambda z: case.function(z, case.shape, case.strength),
        random_rows(6, 12, 1.0).float(),
        scores.float(),
    )
    assert gradient[2].isnan().all()
    gradient[2] = 0.0
    assert gradient.isfinite().all()
