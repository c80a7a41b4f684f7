"""What holds for every row, strength, alpha and p of the mappings with structure: hypothesis."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_entmax.mappings import entmax, oscarmax, prox_oscar, sparsemax, sq_pnorm_max
from tests.mappings.structured_cases import (
    INF,
    PRECISIONS,
    differs_by,
    every_case,
    gradients_of,
    penalised,
    size_of,
    steady,
    strengths,
)
from tests.strategies import alphas, masked_score_rows, score_rows


def parameters(draw_shape, strength, case):
    """Alpha and lambda as drawn, or the p and gamma that lie near them."""
    if case.kind == "pnorm":
        return max(draw_shape, 1.05), strength + 2.0**-10
    return draw_shape, strength


# -- every mapping ------------------------------------------------------------------------------------


@every_case
@steady
@given(masked_score_rows(most_keys=30), alphas(), strengths)
def test_probabilities_sum_to_one_and_masked_keys_have_none(case, row_and_mask, shape, strength):
    row, mask = row_and_mask
    for dtype, tolerance in PRECISIONS:
        scores = row.to(dtype).masked_fill(mask, -INF)
        probs = case.function(scores, *parameters(shape, strength, case))
        assert abs(probs.sum().item() - 1.0) <= tolerance
        assert (probs >= 0.0).all()
        assert (probs[mask] == 0.0).all()


@every_case
@steady
@given(score_rows(most_keys=30), alphas(), strengths, st.floats(-100.0, 100.0))
def test_a_constant_added_to_all_scores_changes_nothing(case, scores, shape, strength, shift):
    values = parameters(shape, strength, case)
    moved = case.function(scores + shift, *values)
    assert (moved - case.function(scores, *values)).abs().max().item() <= 1e-10


@every_case
@steady
@given(score_rows(), alphas(), strengths, st.integers(0, 3), st.integers(0, 3))
def test_padding_before_and_behind_equals_absence(case, scores, shape, strength, before, behind):
    values = parameters(shape, strength, case)
    for dtype, tolerance in PRECISIONS:
        row = scores.to(dtype)
        padded = torch.nn.functional.pad(row, (before, behind), value=-INF)
        kept = slice(before, before + len(row))
        probs = case.function(padded, *values)
        assert differs_by(probs[kept], case.function(row, *values), row) <= tolerance
        assert probs.sum().item() == pytest.approx(1.0, abs=1e-5)


@every_case
@steady
@given(score_rows(most_keys=9), alphas(), strengths)
def test_a_row_of_a_causal_mask_equals_the_row_cut(case, scores, shape, strength):
    values = parameters(shape, strength, case)
    keys = len(scores)
    for dtype, tolerance in PRECISIONS:
        row = scores.to(dtype)
        hidden = torch.ones(keys, keys).triu(1).bool()
        probs = case.function(row.expand(keys, keys).masked_fill(hidden, -INF), *values)
        for last in range(keys):
            cut = case.function(row[: last + 1], *values)
            assert differs_by(probs[last, : last + 1], cut, row) <= tolerance


@every_case
@steady
@given(masked_score_rows(dtype=torch.float32), alphas(), strengths, st.booleans())
def test_no_row_of_numbers_gives_nan_or_infinity(case, row_and_mask, shape, strength, all_masked):
    row, mask = row_and_mask
    row = torch.full_like(row, -INF) if all_masked else row.masked_fill(mask, -INF)
    leaves = [row.clone().requires_grad_()]
    for value in parameters(shape, strength, case):
        leaves.append(torch.tensor(value, dtype=torch.float64, requires_grad=True))
    probs = case.function(*leaves)
    probs[0].backward()
    for tensor in (probs, *(leaf.grad for leaf in leaves)):
        assert tensor.isfinite().all()
        assert not all_masked or not tensor.any()


@every_case
@steady
@given(masked_score_rows(), alphas(), strengths, st.integers(0, 2**31))
def test_gradients_sum_to_zero_and_leave_masked_keys_out(case, row_and_mask, shape, strength, seed):
    row, mask = row_and_mask
    scores = row.masked_fill(mask, -INF)
    grad = torch.randn(len(row), generator=torch.Generator().manual_seed(seed)).double()
    values = parameters(shape, strength, case)
    (gradient,) = gradients_of(lambda z: case.function(z, *values), grad, scores)
    assert (gradient[mask] == 0.0).all()
    scale = 1.0 + gradient.abs().max().item()
    assert abs(gradient.sum().item()) <= 1e-12 * scale


@every_case
@steady
@given(score_rows(), alphas(), strengths)
def test_a_higher_score_never_gets_less_but_among_words_in_order(case, scores, shape, strength):
    order = scores.argsort()
    scores = scores[order]  # in ascending order fusedmax keeps it too
    probs = case.function(scores, *parameters(shape, strength, case))
    assert (probs.diff() >= -1e-13 * size_of(scores)).all()


# -- OSCAR and sq-pnorm-max ------------------------------------------------------------------------------


@steady
@given(masked_score_rows(most_keys=20), alphas(), strengths, st.randoms(use_true_random=False))
def test_oscar_and_sq_pnorm_max_commute_with_permutation(row_and_mask, alpha, strength, random):
    row, mask = row_and_mask
    order = list(range(len(row)))
    random.shuffle(order)
    for dtype, tolerance in PRECISIONS:
        scores = row.to(dtype).masked_fill(mask, -INF)
        functions = (
            lambda z: oscarmax(z, strength, alpha),
            lambda z: sq_pnorm_max(z, max(alpha, 1.05), strength + 2.0**-10),
            lambda z: prox_oscar(z, strength),
        )
        for function in functions:
            assert differs_by(function(scores[order]), function(scores)[order], row) <= tolerance


@steady
@given(masked_score_rows(), alphas(), strengths)
def test_a_masked_key_anywhere_is_as_good_as_absent_but_to_chains(row_and_mask, alpha, strength):
    row, mask = row_and_mask
    for dtype, tolerance in PRECISIONS:
        scores = row.to(dtype).masked_fill(mask, -INF)
        kept = scores[~mask]
        functions = (
            lambda z: oscarmax(z, strength, alpha),
            lambda z: sq_pnorm_max(z, max(alpha, 1.05), strength + 2.0**-10),
            lambda z: prox_oscar(z, strength),
        )
        for function in functions:
            assert differs_by(function(scores)[~mask], function(kept), row) <= tolerance


@steady
@given(masked_score_rows(most_keys=20), alphas())
def test_oscar_without_bound_is_uniform(row_and_mask, alpha):
    row, mask = row_and_mask
    for dtype, tolerance in PRECISIONS:
        probs = oscarmax(row.to(dtype).masked_fill(mask, -INF), 1e6, alpha)[~mask]
        assert probs.unique().numel() == 1
        assert (probs * probs.numel() - 1.0).abs().max().item() <= tolerance


@steady
@given(score_rows(), strengths)
def test_prox_oscar_is_odd(scores, strength):
    assert torch.equal(prox_oscar(-scores, strength), -prox_oscar(scores, strength))


@steady
@given(masked_score_rows(most_keys=20), st.floats(0.01, 100.0))
def test_sq_pnorm_max_of_two_is_sparsemax_of_scores_over_gamma(row_and_mask, gamma):
    row, mask = row_and_mask
    scores = row.masked_fill(mask, -INF)
    difference = sq_pnorm_max(scores, 2.0, gamma) - sparsemax(scores / gamma)
    assert difference.abs().max().item() <= 1e-12 * size_of(row / gamma)


@steady
@given(score_rows(most_keys=20), st.floats(1.05, 2.0), st.floats(0.0625, 8.0, width=32))
def test_sq_pnorm_max_has_only_scores_less_than_gamma_below_the_largest(scores, p, gamma):
    probs = sq_pnorm_max(scores, p, gamma)
    assert (probs[scores <= scores.max() - gamma] == 0.0).all()


# -- a strength of zero, and groups ------------------------------------------------------------------------


@penalised
@steady
@given(masked_score_rows(), alphas(), st.integers(0, 2**31))
def test_a_strength_of_zero_is_entmax_and_so_are_its_gradients(case, row_and_mask, alpha, seed):
    row, mask = row_and_mask
    scores = row.masked_fill(mask, -INF)
    grad = torch.randn(len(row), generator=torch.Generator().manual_seed(seed)).double()
    alpha = torch.tensor(alpha, dtype=torch.float64)
    expected = entmax(scores, alpha), *gradients_of(entmax, grad, scores, alpha)
    for zero, tolerance in ((0.0, 0.0), (torch.zeros(()).double(), 1e-12)):

        def function(z, a, zero=zero):
            return case.function(z, a, zero)

        ours = function(scores, alpha), *gradients_of(function, grad, scores, alpha)
        for one, other in zip(ours, expected, strict=True):
            limit = tolerance * (1.0 + other.abs().max().item())
            assert (one - other).abs().max().item() <= limit


@penalised
@steady
@given(score_rows(most_keys=8), alphas(), strengths, st.integers(2, 4), st.booleans())
def test_equal_scores_have_one_probability_to_the_bit(case, scores, alpha, strength, times, apart):
    if apart and case.kind == "tv":
        apart = False  # neighbours alone are a group there
    for dtype in (torch.float32, torch.float64):
        row = scores.to(dtype)
        row = row.repeat(times) if apart else row.repeat_interleave(times)
        probs = case.function(row, alpha, strength)
        groups = probs.view(times, -1).T if apart else probs.view(-1, times)
        assert (groups == groups[:, :1]).all()
