"""The entmax loss of a target: against the entmax package, fairseq, closed forms, and itself."""

import math

import entmax
import pytest
import torch
from torch.nn import functional

from fairseq_entmax import mappings
from fairseq_entmax.mappings import (
    entmax15_loss,
    entmax_loss,
    entmax_loss_parts,
    sparsemax_loss,
)
from fairseq_entmax.mappings.functional import map_scores
from tests.mappings.reference import bisection

ALPHAS = [1.0, 1.0001, 1.2, 1.5, 2.0]
SPARSE = [1.2, 1.33, 1.5, 1.9, 2.0]
SMOOTHINGS = [0.0, 0.1]


def case(rows=7, keys=40, spread=3.0, dtype=torch.float64, seed=0):
    """Scores that float32 holds exactly, and a target for each row: in turn the best key and any."""
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(rows, keys, generator=generator)
    target = torch.randint(keys, (rows,), generator=generator)
    target[::2] = scores[::2].argmax(-1)
    return scores.to(dtype), target


def wanted(scores, target, smoothing):
    """q, key by key."""
    probs = torch.zeros_like(scores)
    for row, index in enumerate(target):
        seen = (scores[row] > -torch.inf).nonzero().flatten()
        probs[row, seen] = smoothing / max(1, len(seen) - 1)
        probs[row, index] = 1 - smoothing
    return probs


def reference(scores, target, alpha, smoothing=0.0):
    """(p - q) z + H(p) in float64, p by bisection; without masks."""
    scores = scores.double()
    probs = bisection(scores, alpha)
    if alpha == 1.0:
        entropy = -torch.special.xlogy(probs, probs).sum(-1)
    else:
        entropy = (probs - probs**alpha).sum(-1) / (alpha * (alpha - 1))
    return ((probs - wanted(scores, target, smoothing)) * scores).sum(-1) + entropy


def gradient(scores, target, alpha, smoothing=0.0):
    scores = scores.detach().clone().requires_grad_()
    entmax_loss_parts(scores, target, alpha, smoothing).loss.sum().backward()
    return scores.grad


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", SPARSE)
def test_it_is_the_loss_of_the_entmax_package_by_bisection(alpha):
    for spread in (0.1, 3.0, 10.0):
        scores, target = case(spread=spread)
        package = entmax.EntmaxBisectLoss(alpha, n_iter=200, reduction="none")
        expected = package(scores, target)
        torch.testing.assert_close(entmax_loss(scores, target, alpha), expected, atol=1e-9, rtol=0)


def test_at_one_and_a_half_and_at_two_it_is_the_exact_loss_of_the_package():
    scores, target = case(keys=300)
    expected = entmax.Entmax15Loss(k=None, reduction="none")(scores, target)
    torch.testing.assert_close(entmax15_loss(scores, target), expected, atol=1e-9, rtol=0)
    expected = entmax.SparsemaxLoss(k=None, reduction="none")(scores, target)
    torch.testing.assert_close(sparsemax_loss(scores, target), expected, atol=1e-9, rtol=0)


def test_at_one_it_is_the_cross_entropy():
    scores, target = case()
    expected = functional.cross_entropy(scores, target, reduction="none")
    torch.testing.assert_close(entmax_loss(scores, target, 1.0), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_at_one_it_is_fairseqs_label_smoothed_cross_entropy(smoothing):
    from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

    scores, target = case()
    log_probs = scores.log_softmax(-1)
    expected, _ = label_smoothed_nll_loss(log_probs, target[:, None], smoothing, reduce=False)
    loss = entmax_loss_parts(scores, target, 1.0, smoothing).loss
    torch.testing.assert_close(loss, expected.view(-1), atol=1e-12, rtol=0)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_with_smoothing_only_the_entropy_of_what_is_wanted_is_left_out(alpha):
    scores, target = case()
    loss = entmax_loss_parts(scores, target, alpha, 0.2).loss
    expected = reference(scores, target, alpha, 0.2)
    torch.testing.assert_close(loss, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("alpha", SPARSE)
def test_it_is_zero_exactly_where_the_target_is_ahead_by_the_margin(alpha):
    margin = 1 / (alpha - 1)
    scores = torch.tensor([[margin + 1e-3, 0.0, -1.0], [margin - 1e-1, 0.0, -1.0]]).double()
    target = torch.zeros(2, dtype=torch.int64)
    ahead, behind = entmax_loss(scores, target, alpha)
    assert ahead == 0
    assert behind > 0
    assert torch.equal(gradient(scores, target, alpha)[0], torch.zeros(3).double())


@pytest.mark.parametrize("alpha", [1.01, *SPARSE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_equal_scores_it_is_the_entropy_of_equal_probabilities(alpha, dtype):
    for keys in (2, 30, 5000):
        scores = torch.full((3, keys), 7.25, dtype=dtype)
        parts = entmax_loss_parts(scores, torch.tensor([0, 1, keys - 1]), alpha)
        expected = -math.expm1(-(alpha - 1) * math.log(keys)) / (alpha * (alpha - 1))
        tolerance = 5e-6 if dtype == torch.float32 else 1e-12
        assert parts.loss.tolist() == pytest.approx([expected] * 3, rel=tolerance)
        assert parts.support.tolist() == [keys] * 3
        assert parts.target_prob.tolist() == pytest.approx([1 / keys] * 3, rel=tolerance)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_what_is_reported_of_a_row_is_that_of_its_probabilities(alpha):
    scores, target = case(keys=300)
    parts = entmax_loss_parts(scores.requires_grad_(), target, alpha, 0.1)
    probs = map_scores(scores.detach(), alpha)
    assert torch.equal(parts.support, (probs > 0).sum(-1))
    expected = probs.gather(-1, target[:, None]).squeeze(-1)
    torch.testing.assert_close(parts.target_prob, expected, atol=1e-12, rtol=0)
    assert not parts.target_prob.requires_grad


# --- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_its_first_and_second_derivatives_are_those_of_finite_differences(alpha, smoothing):
    scores, target = case(rows=4, keys=9)
    scores.requires_grad_()

    def loss(scores):
        return entmax_loss_parts(scores, target, alpha, smoothing).loss

    assert torch.autograd.gradcheck(loss, (scores,))
    assert torch.autograd.gradgradcheck(loss, (scores,))


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_its_gradient_is_the_difference_of_the_probabilities(alpha, smoothing):
    for keys in (9, 700):
        scores, target = case(keys=keys)
        expected = bisection(scores, alpha) - wanted(scores, target, smoothing)
        found = gradient(scores, target, alpha, smoothing)
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


def test_each_row_has_the_factor_that_its_loss_has():
    for alpha in (1.0, 1.33, 1.5):
        scores, target = case(keys=300, dtype=torch.float32)
        factors = torch.tensor([0.0, 1.0, -2.0, 1e-3, 5.0, 1.0, 0.5])
        scaled = scores.clone().requires_grad_()
        (entmax_loss(scaled, target, alpha) * factors).sum().backward()
        expected = factors[:, None] * gradient(scores, target, alpha)
        torch.testing.assert_close(scaled.grad, expected, atol=1e-6, rtol=0)


def test_many_gradients_are_computed_at_once():
    scores, target = case(rows=3, keys=5)
    scores.requires_grad_()
    losses = entmax_loss(scores, target, 1.5)
    grads = torch.eye(3).double()
    (found,) = torch.autograd.grad(losses, scores, grads, is_grads_batched=True, retain_graph=True)
    for row in range(3):
        (alone,) = torch.autograd.grad(losses[row], scores, retain_graph=True)
        torch.testing.assert_close(found[row], alone, atol=1e-12, rtol=0)


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


# --- rows of a vocabulary, dtypes and shapes -----------------------------------------------------


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("alpha", [1.0, 1.1, 1.33, 1.5, 2.0])
def test_float32_keeps_its_digits_in_rows_of_32000_keys(alpha, smoothing):
    scores, target = case(rows=3, keys=32000, spread=1.0, dtype=torch.float32)
    scores[1:, :10] += 5.0  # as of a model that is trained: ten keys stand out
    wide = entmax_loss_parts(scores.double(), target, alpha, smoothing)
    parts = entmax_loss_parts(scores, target, alpha, smoothing)
    torch.testing.assert_close(parts.loss.double(), wide.loss, atol=0, rtol=1e-5)
    torch.testing.assert_close(
        parts.loss.double(), reference(scores, target, alpha, smoothing), atol=0, rtol=1e-5
    )
    found = gradient(scores, target, alpha, smoothing)
    expected = bisection(scores, alpha) - wanted(scores, target, smoothing)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_a_small_loss_is_as_precise_as_a_large_one(alpha):
    # A difference of a millionth of what it is computed from
    gap = 1 / (alpha - 1) - 1e-3
    scores = torch.full((1, 5000), -30.0)
    scores[0, 7], scores[0, 4000] = gap, 0.0
    target = torch.tensor([7])
    expected = reference(scores.double(), target, alpha)
    assert 0 < expected < 1e-5
    found = entmax_loss(scores, target, alpha).double()
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-5)


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


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_rows_of_any_shape_are_those_of_a_matrix(alpha):
    scores, target = case(rows=6, keys=200)
    expected = entmax_loss(scores, target, alpha)
    for shape in ((2, 3), (3, 1, 2)):
        loss = entmax_loss(scores.view(*shape, 200), target.view(shape), alpha)
        assert torch.equal(loss, expected.view(shape))
    assert torch.equal(entmax_loss(scores[1], target[1], alpha), expected[1])
    turned = scores.t().contiguous().t()
    assert not turned.is_contiguous()
    torch.testing.assert_close(entmax_loss(turned, target, alpha), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(
        gradient(turned, target, alpha), gradient(scores, target, alpha), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_no_rows_have_no_losses(alpha):
    for shape in ((0, 5), (2, 0, 300), (0, 0)):
        scores = torch.zeros(shape, requires_grad=True)
        parts = entmax_loss_parts(scores, torch.zeros(shape[:-1], dtype=torch.int64), alpha, 0.1)
        assert parts.loss.shape == parts.support.shape == shape[:-1]
        parts.loss.sum().backward()
        assert scores.grad.shape == shape


def test_the_short_names_are_exported_and_have_their_alphas():
    scores, target = case()
    assert torch.equal(mappings.entmax15_loss(scores, target), entmax_loss(scores, target, 1.5))
    assert torch.equal(mappings.sparsemax_loss(scores, target), entmax_loss(scores, target, 2.0))
    assert torch.equal(entmax_loss(scores, target), entmax_loss(scores, target, 1.5))


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 0.99}, "alpha must be from 1 .softmax. to 2 .sparsemax., not 0.99"),
        ({"alpha": 2.5}, "alpha must be from 1 .* not 2.5"),
        ({"alpha": math.nan}, "alpha must be from 1 .* not nan"),
        ({"label_smoothing": 1.0}, "label_smoothing must be from 0 to below 1, not 1.0"),
        ({"label_smoothing": -0.1}, "label_smoothing must be .* not -0.1"),
        ({"target": torch.tensor([0, 4])}, "target must be from 0 to 3, .* 4 keys, not 4"),
        ({"target": torch.tensor([-100, 1])}, "target must be from 0 to 3, .* not -100"),
        ({"target": torch.tensor([0, 1]).int()}, "target must be .* torch.int64, not torch.int32"),
        ({"target": [0, 1]}, "target must be a tensor of torch.int64, not list"),
        ({"target": torch.tensor([0])}, r"target must be of shape \(2,\), .* not \(1,\)"),
        ({"scores": torch.zeros(2, 4).int()}, "scores must be a floating-point tensor, not"),
        ({"scores": torch.tensor(1.0)}, "scores must have a dimension for the keys"),
        ({"scores": torch.zeros(2, 0)}, "scores must have a key for each target"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(arguments, message):
    given = {"scores": torch.zeros(2, 4), "target": torch.tensor([0, 3])} | arguments
    with pytest.raises(ValueError, match=message):
        entmax_loss_parts(**given)
