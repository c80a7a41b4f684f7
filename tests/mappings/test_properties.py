"""What holds for every row of scores and every alpha, on rows that hypothesis draws."""

import math

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairseq_entmax.mappings import entmax, softmax, sparsemax
from tests.mappings.reference import bisection, every_support
from tests.strategies import alphas, masked_score_rows, score_rows

# Fixed examples: a run says the same today and tomorrow
settings.register_profile(
    "mappings",
    derandomize=True,
    deadline=None,
    max_examples=150,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
steady = settings(settings.get_profile("mappings"))


def largest_difference(first, second):
    return (first - second).abs().max().item()


@steady
@given(score_rows(most_keys=40), alphas())
def test_probabilities_sum_to_one_and_are_never_negative(scores, alpha):
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-12)):
        probs = entmax(scores.to(dtype), alpha)
        assert abs(probs.sum().item() - 1.0) <= tolerance
        assert (probs >= 0.0).all()


@steady
@given(score_rows(most_keys=40), alphas())
def test_probabilities_equal_bisection(scores, alpha):
    truth = bisection(scores, alpha)
    assert largest_difference(entmax(scores.float(), alpha).double(), truth) <= 1e-6
    assert largest_difference(entmax(scores, alpha), truth) <= 1e-10


@steady
@given(score_rows(), alphas())
def test_a_number_and_a_tensor_give_the_same_probabilities(scores, alpha):
    as_tensor = torch.tensor(alpha, dtype=torch.float64)
    assert largest_difference(entmax(scores, alpha), entmax(scores, as_tensor)) <= 1e-10


@steady
@given(score_rows(most_keys=6, largest=10.0), st.sampled_from((1.5, 2.0)))
def test_probabilities_equal_those_found_by_trying_every_support(scores, alpha):
    truth = torch.tensor(every_support(scores.tolist(), alpha), dtype=torch.float64)
    assert largest_difference(entmax(scores, alpha), truth) <= 1e-7


@steady
@given(score_rows(), alphas(), st.floats(-100.0, 100.0))
def test_a_constant_added_to_all_scores_changes_nothing(scores, alpha, shift):
    assert largest_difference(entmax(scores + shift, alpha), entmax(scores, alpha)) <= 1e-10


@steady
@given(score_rows(), alphas(), st.randoms(use_true_random=False))
def test_reordered_keys_give_reordered_probabilities(scores, alpha, random):
    order = list(range(scores.numel()))
    random.shuffle(order)
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-12)):
        row = scores.to(dtype)
        assert largest_difference(entmax(row[order], alpha), entmax(row, alpha)[order]) <= tolerance


@steady
@given(score_rows(), alphas())
def test_a_higher_score_never_gets_less(scores, alpha):
    probs = entmax(scores, alpha)[scores.argsort()]
    assert (probs.diff() >= -1e-14).all()


@steady
@given(score_rows(), alphas())
def test_equal_scores_get_equal_probabilities(scores, alpha):
    doubled = entmax(torch.cat([scores, scores]), alpha)
    count = scores.numel()
    assert largest_difference(doubled[:count], doubled[count:]) <= 1e-14


@steady
@given(score_rows(), alphas(), alphas())
def test_the_support_shrinks_as_alpha_grows(scores, first, second):
    smaller, larger = sorted((first, second))
    at_smaller, at_larger = entmax(scores, smaller), entmax(scores, larger)
    # a weight below 1e-9 is as good as on the edge of the support
    assert (at_smaller[at_larger > 1e-9] > 0.0).all()


@steady
@given(score_rows(), alphas(1.01, 2.0))
def test_a_key_is_in_the_support_just_if_the_sum_at_its_own_score_is_below_one(scores, alpha):
    # the definition with the threshold at which the key would get exactly nothing
    epsilon = alpha - 1.0
    probs = entmax(scores, alpha)
    for score, prob in zip(scores.tolist(), probs.tolist(), strict=True):
        above = (epsilon * (scores - score)).clamp(min=0.0) ** (1.0 / epsilon)
        total = above.sum().item()
        if total > 1.0 + 1e-9:
            assert prob == 0.0
        elif total < 0.5:
            assert prob > 0.0


@steady
@given(masked_score_rows(), alphas())
def test_a_masked_key_is_as_good_as_absent(row_and_mask, alpha):
    scores, mask = row_and_mask
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-12)):
        row = scores.to(dtype)
        probs = entmax(row.masked_fill(mask, -math.inf), alpha)
        assert (probs[mask] == 0.0).all()
        assert largest_difference(probs[~mask], entmax(row[~mask], alpha)) <= tolerance


@steady
@given(masked_score_rows(), alphas(), st.integers(0, 2**31))
def test_gradients_sum_to_zero_and_leave_masked_keys_out(row_and_mask, alpha, seed):
    scores, mask = row_and_mask
    scores = scores.masked_fill(mask, -math.inf).requires_grad_()
    grad = torch.randn(
        scores.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    entmax(scores, alpha).backward(grad)
    assert (scores.grad[mask] == 0.0).all()
    # as the probabilities do not change when all scores move together
    assert abs(scores.grad.sum().item()) <= 1e-12


@steady
@given(masked_score_rows(dtype=torch.float32), alphas(), st.booleans())
def test_no_row_of_numbers_gives_nan_or_infinity(row_and_mask, alpha, all_masked):
    row, mask = row_and_mask
    row = torch.full_like(row, -math.inf) if all_masked else row.masked_fill(mask, -math.inf)
    scores = row.clone().requires_grad_()
    alpha_leaf = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    probs = entmax(scores, alpha_leaf)
    probs[0].backward()
    for tensor in (probs, scores.grad, alpha_leaf.grad):
        assert tensor.isfinite().all()
    if all_masked:
        assert alpha_leaf.grad.item() == 0.0
        assert not scores.grad.any()


@steady
@given(score_rows(), st.floats(0.0, 1e-6))
def test_the_limit_at_alpha_one_is_softmax(scores, excess):
    # the derivative in alpha is at most sum p (log p)**2, which is below 10 for 12 keys
    truth = torch.softmax(scores, -1)
    assert largest_difference(entmax(scores, 1.0 + excess), truth) <= 10.0 * excess + 1e-10
    assert largest_difference(softmax(scores), truth) <= 1e-14


@steady
@given(score_rows(), st.floats(0.0, 1e-6))
def test_the_limit_at_alpha_two_is_sparsemax(scores, lack):
    truth = bisection(scores, 2.0)
    assert largest_difference(entmax(scores, 2.0 - lack), truth) <= 10.0 * lack + 1e-10
    assert largest_difference(sparsemax(scores), truth) <= 1e-12
