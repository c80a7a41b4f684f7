"""What holds for every row of scores, every alpha and strength, on rows that hypothesis draws."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairseq_entmax.mappings import entmax, fusedmax, oscarmax, sq_pnorm_max
from tests.strategies import alphas, masked_score_rows, score_rows

# Fixed examples: a run says the same today and tomorrow
steady = settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
strengths = st.one_of(
    st.sampled_from((0.0, 0.125, 1.0, 64.0, 1e6)), st.floats(2.0**-10, 5.0, width=32)
)
FUNCTIONS = {
    "entmax": lambda scores, alpha, strength: entmax(scores, alpha),
    "fusedmax": lambda scores, alpha, strength: fusedmax(scores, strength, alpha),
    "oscarmax": lambda scores, alpha, strength: oscarmax(scores, strength, alpha),
    "sq_pnorm_max": lambda scores, alpha, strength: sq_pnorm_max(
        scores, max(alpha, 1.05), strength + 2.0**-10
    ),
}
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


def difference(first, second):
    return (first - second).abs().max().item()


@every_function
@steady
@given(masked_score_rows(most_keys=30), alphas(), strengths, st.floats(-100.0, 100.0))
def test_rows_are_probabilities_that_a_constant_does_not_change(
    function, row_and_mask, alpha, strength, shift
):
    row, mask = row_and_mask
    scores = row.masked_fill(mask, -math.inf)
    probs = function(scores, alpha, strength)
    assert abs(probs.sum().item() - 1.0) <= 1e-10
    assert (probs >= 0.0).all()
    assert (probs[mask] == 0.0).all()
    assert difference(function(scores + shift, alpha, strength), probs) <= 1e-9


@every_function
@steady
@given(score_rows(), alphas(), strengths, st.integers(0, 3), st.integers(0, 3))
def test_padding_before_and_behind_equals_absence(
    function, scores, alpha, strength, before, behind
):
    padded = torch.nn.functional.pad(scores, (before, behind), value=-math.inf)
    probs = function(padded, alpha, strength)[before : before + len(scores)]
    assert difference(probs, function(scores, alpha, strength)) <= 1e-10


@every_function
@steady
@given(masked_score_rows(dtype=torch.float32), alphas(), strengths, st.booleans())
def test_no_row_of_numbers_gives_nan_or_infinity(function, row_and_mask, alpha, strength, hidden):
    row, mask = row_and_mask
    row = torch.full_like(row, -math.inf) if hidden else row.masked_fill(mask, -math.inf)
    leaf = row.clone().requires_grad_()
    probs = function(leaf, alpha, strength)
    probs[0].backward()
    for tensor in (probs, leaf.grad):
        assert tensor.isfinite().all()
        assert not hidden or not tensor.any()
    assert (leaf.grad[mask] == 0).all()
    assert abs(leaf.grad.sum().item()) <= 1e-5 * (1.0 + leaf.grad.abs().max().item())
