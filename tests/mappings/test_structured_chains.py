"""What holds of total variation, and so of fusedmax, for every row and strength: hypothesis."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_entmax.mappings import entmax, fusedmax, prox_oscar, prox_tv, softmax
from tests.mappings.structured_cases import INF, PRECISIONS, differs_by, size_of, steady, strengths
from tests.mappings.structured_reference import chains, prox_tv_rows
from tests.strategies import alphas, masked_score_rows, score_rows


@steady
@given(masked_score_rows(most_keys=30), strengths)
def test_total_variation_commutes_with_reversal(row_and_mask, strength):
    row, mask = row_and_mask
    for dtype, tolerance in PRECISIONS:
        scores = row.to(dtype).masked_fill(mask, -INF)
        turned = prox_tv(scores.flip(0), strength).flip(0)
        assert differs_by(turned, prox_tv(scores, strength), row) <= tolerance
        probs = fusedmax(scores.flip(0), strength).flip(0)
        assert differs_by(probs, fusedmax(scores, strength), row) <= tolerance


@steady
@given(score_rows(), score_rows(), strengths, alphas(), st.integers(1, 3))
def test_a_gap_leaves_two_chains(first, second, strength, alpha, gap):
    joined = torch.cat([first, torch.full((gap,), -INF, dtype=torch.float64), second])
    apart = torch.cat([prox_tv(first, strength), prox_tv(second, strength)])
    kept = joined > -INF
    assert differs_by(prox_tv(joined, strength)[kept], apart, apart) <= 1e-12
    probs = fusedmax(joined, strength, alpha)[kept]
    assert differs_by(probs, entmax(apart, alpha), apart) <= 2e-12


@steady
@given(masked_score_rows(most_keys=20), alphas())
def test_a_strength_without_bound_makes_each_chain_constant(row_and_mask, alpha):
    row, mask = row_and_mask
    for dtype, tolerance in PRECISIONS:
        scores = row.to(dtype).masked_fill(mask, -INF)
        values, probs = prox_tv(scores, 1e6), fusedmax(scores, 1e6, alpha)
        parts = chains(scores)
        for part in parts:
            assert values[part].unique().numel() == probs[part].unique().numel() == 1
            assert abs(values[part][0] - scores[part].mean()) <= tolerance * size_of(row)
        if len(parts) == 1:
            assert (probs[parts[0]] * scores[parts[0]].numel() - 1.0).abs().max() <= tolerance


@steady
@given(score_rows(most_keys=20), strengths, st.floats(0.125, 8.0, width=32))
def test_scores_and_strength_scale_together(scores, strength, scale):
    for prox in (prox_tv, prox_oscar):
        scaled = prox(scale * scores, scale * strength) / scale
        assert differs_by(scaled, prox(scores, strength), scores) <= 1e-12


@steady
@given(score_rows(most_keys=20), strengths, strengths)
def test_smoothing_twice_is_smoothing_by_the_sum(scores, first, second):
    # Of total variation alone among penalties in general
    twice = prox_tv(prox_tv(scores, first), second)
    assert differs_by(twice, prox_tv(scores, first + second), scores) <= 1e-10


@steady
@given(masked_score_rows(most_keys=20), strengths)
def test_smoothing_keeps_the_mean_of_a_chain_and_never_adds_variation(row_and_mask, strength):
    row, mask = row_and_mask
    scores = row.masked_fill(mask, -INF)
    values = prox_tv(scores, strength)
    for part in chains(scores):
        assert abs(values[part].mean() - scores[part].mean()) <= 1e-12 * size_of(row)
        assert values[part].diff().abs().sum() <= scores[part].diff().abs().sum() + 1e-12


@steady
@given(score_rows(most_keys=40), strengths)
def test_total_variation_equals_the_sequential_algorithm(scores, strength):
    truth = prox_tv_rows(scores, strength)
    for dtype, tolerance in PRECISIONS:
        ours = prox_tv(scores.to(dtype), strength).double()
        assert differs_by(ours, truth, scores) <= tolerance


@steady
@given(score_rows(most_keys=20), alphas())
def test_the_softmax_of_a_smoothed_row_is_fusedmax_at_alpha_one(scores, alpha):
    probs = fusedmax(scores, 0.5, 1.0)
    assert (probs - softmax(prox_tv(scores, 0.5))).abs().max().item() <= 1e-13 * size_of(scores)
    probs = fusedmax(scores, 0.5, alpha)
    assert (probs - entmax(prox_tv(scores, 0.5), alpha)).abs().max() <= 1e-11 * size_of(scores)
