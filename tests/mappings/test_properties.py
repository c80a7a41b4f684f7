"""Properties of every row of scores, alpha and strength, on rows that hypothesis draws."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairseq_entmax.mappings import entmax, fusedmax, oscarmax, sq_pnorm_max

# The examples are fixed, so that every run gives the same result
steady = settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# The ends and 1.5 are frequent, because separate code computes them
alphas = st.one_of(st.sampled_from((1.0, 1.5, 2.0)), st.floats(1.0, 2.0))
strengths = st.one_of(st.sampled_from((0, 0.125, 1, 64, 1e6)), st.floats(2.0**-10, 5.0, width=32))
FUNCTIONS = {
    "entmax": lambda scores, alpha, strength: entmax(scores, alpha),
    "fusedmax": lambda scores, alpha, strength: fusedmax(scores, strength, alpha),
    "oscarmax": lambda scores, alpha, strength: oscarmax(scores, strength, alpha),
    "sq_pnorm_max": lambda z, alpha, s: sq_pnorm_max(z, max(alpha, 1.05), s + 2.0**-10),
}
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


@st.composite
def masked_score_rows(draw):
    """A row with frequent ties, and a mask (true where masked) that leaves at least one key."""
    spread = draw(st.sampled_from((0.125, 1.0, 4.0, 50.0)))
    score = st.one_of(st.floats(-spread, spread, width=32), st.sampled_from((0.0, spread, -spread)))
    row = torch.tensor(draw(st.lists(score, min_size=1, max_size=12)))
    count = row.numel()
    mask = torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    mask[draw(st.integers(0, count - 1))] = False
    return row, mask


@every_function
@steady
@given(masked_score_rows(), alphas, strengths, st.booleans())
def test_finite_scores_give_finite_results(function, row_and_mask, alpha, strength, hidden):
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
