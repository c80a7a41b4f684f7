"""The entmax loss of masked keys, of what is no number, in narrow dtypes and in other shapes."""

import math

import entmax
import pytest
import torch
from torch.nn import functional

from fairseq_entmax.mappings import entmax15_loss, entmax_loss, entmax_loss_parts
from tests.mappings.loss_cases import ALPHAS, SMOOTHINGS, case, gradient

# --- masked keys, and what is no number ----------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_masked_keys_have_no_part_in_it(alpha, smoothing, dtype):
    scores, target = case(dtype=dtype)
    wider = torch.full((7, 43), -torch.inf, dtype=dtype)
    wider[:, 2:42] = scores
    parts = entmax_loss_parts(wider, target + 2, alpha, smoothing)
    expected = entmax_loss_parts(scores, target, alpha, smoothing)
    torch.testing.assert_close(tuple(parts), tuple(expected), atol=2e-6, rtol=0)
    found = gradient(wider, target + 2, alpha, smoothing)
    plain = gradient(scores, target, alpha, smoothing)
    torch.testing.assert_close(found[:, 2:42], plain, atol=1e-6, rtol=0)
    assert torch.equal(found[:, [0, 1, 42]], torch.zeros(7, 3, dtype=dtype))


def test_the_package_gives_nan_where_a_key_is_masked_and_this_does_not():
    scores, target = case(rows=2, keys=6)
    scores[:, 5] = -torch.inf
    target = target.clamp(max=4)
    assert entmax.EntmaxBisectLoss(1.5, reduction="none")(scores, target).isnan().all()
    assert entmax15_loss(scores, target).isfinite().all()


@pytest.mark.parametrize("keys", [5, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_masked_target_costs_infinity_and_leaves_no_nan(alpha, smoothing, dtype, keys):
    scores, target = case(rows=3, keys=keys, dtype=dtype)
    scores[0, target[0]] = -torch.inf
    scores[1] = -torch.inf
    parts = entmax_loss_parts(scores, target, alpha, smoothing)
    assert parts.loss[:2].tolist() == [math.inf, math.inf]
    assert parts.loss[2].isfinite()
    assert parts.target_prob[:2].tolist() == [0.0, 0.0]
    assert parts.support[1] == 0
    found = gradient(scores, target, alpha, smoothing)
    assert found.isfinite().all()
    assert torch.equal(found[1], -functional.one_hot(target[1], keys).to(dtype))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_row_with_one_key_that_is_seen_is_certain_even_with_smoothing(alpha):
    scores = torch.full((1, 4), -torch.inf)
    scores[0, 2] = 3.0
    target = torch.tensor([2])
    parts = entmax_loss_parts(scores, target, alpha, 0.1)
    assert [part.item() for part in parts] == [0, 1, 1]
    assert torch.equal(gradient(scores, target, alpha, 0.1), torch.zeros(1, 4))


@pytest.mark.parametrize("keys", [6, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_what_is_no_number_shows_in_its_own_row_alone(alpha, smoothing, dtype, keys):
    scores, target = case(rows=4, keys=keys, dtype=dtype)
    clean = entmax_loss_parts(scores, target, alpha, smoothing)
    expected = gradient(scores, target, alpha, smoothing)
    scores[1, 3], scores[1, 4], scores[2, 5] = torch.nan, -torch.inf, torch.inf
    parts = entmax_loss_parts(scores, target, alpha, smoothing)
    found = gradient(scores, target, alpha, smoothing)
    assert parts.loss[1:3].isnan().all()
    assert parts.target_prob[1:3].isnan().all()
    assert parts.support[1:3].tolist() == [0, 0]
    assert found[1:3].isnan().all()
    for part, same in zip(parts, clean, strict=True):
        torch.testing.assert_close(part[[0, 3]], same[[0, 3]], atol=1e-6, rtol=0)
    torch.testing.assert_close(found[[0, 3]], expected[[0, 3]], atol=1e-6, rtol=0)


def test_an_incoming_gradient_that_is_no_number_leaves_none_in_its_row():
    scores, target = case(rows=3, keys=300, dtype=torch.float32)
    scores.requires_grad_()
    entmax15_loss(scores, target).backward(torch.tensor([torch.nan, 1.0, torch.inf]))
    assert not scores.grad[[0, 2]].isfinite().any()
    assert scores.grad[1].isfinite().all()


# --- dtypes and shapes ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_narrow_scores_are_computed_in_float32(alpha, dtype):
    scores, target = case(keys=300, dtype=dtype)
    parts = entmax_loss_parts(scores, target, alpha, 0.1)
    assert (parts.loss.dtype, parts.target_prob.dtype) == (torch.float32, torch.float32)
    expected = entmax_loss_parts(scores.float(), target, alpha, 0.1)
    assert all(map(torch.equal, parts, expected))
    found = gradient(scores, target, alpha, 0.1)
    assert torch.equal(found, gradient(scores.float(), target, alpha, 0.1).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_rows_of_any_shape_are_those_of_a_matrix(alpha, dtype):
    scores, target = case(rows=6, keys=200, dtype=dtype)
    expected = entmax_loss(scores, target, alpha)
    for shape in ((2, 3), (3, 1, 2)):
        loss = entmax_loss(scores.view(*shape, 200), target.view(shape), alpha)
        assert torch.equal(loss, expected.view(shape))
    torch.testing.assert_close(
        entmax_loss(scores[1], target[1], alpha), expected[1], atol=1e-6, rtol=0
    )
    turned = scores.t().contiguous().t()
    assert not turned.is_contiguous()
    torch.testing.assert_close(entmax_loss(turned, target, alpha), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(
        gradient(turned, target, alpha), gradient(scores, target, alpha), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_no_rows_have_no_losses(alpha):
    for shape in ((0, 5), (2, 0, 300), (0, 0)):
        scores = torch.zeros(shape, requires_grad=True)
        parts = entmax_loss_parts(scores, torch.zeros(shape[:-1], dtype=torch.int64), alpha, 0.1)
        assert parts.loss.shape == parts.support.shape == shape[:-1]
        parts.loss.sum().backward()
        assert scores.grad.shape == shape
