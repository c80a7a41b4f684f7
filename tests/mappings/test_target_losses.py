"""The entmax loss of a target: against the entmax package, fairseq, closed forms, and itself."""

import math
import re
from pathlib import Path

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
from tests.mappings.loss_cases import (
    ALPHAS,
    SMOOTHINGS,
    SPARSE,
    case,
    gradient,
    reference,
    wanted,
)
from tests.mappings.reference import bisection

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


# --- rows of a vocabulary ------------------------------------------------------------------------


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


def test_the_short_names_are_exported_and_have_their_alphas():
    scores, target = case()
    assert torch.equal(mappings.entmax15_loss(scores, target), entmax_loss(scores, target, 1.5))
    assert torch.equal(mappings.sparsemax_loss(scores, target), entmax_loss(scores, target, 2.0))
    assert torch.equal(entmax_loss(scores, target), entmax_loss(scores, target, 1.5))


def test_the_example_of_the_chapter_runs_and_is_as_it_says():
    page = (Path(__file__).parents[2] / "docs" / "losses.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(example, names)
    assert names["loss"][0] == 0 < names["loss"][1]
    assert not names["scores"].grad[0].any()
    assert names["scores"].grad[1].count_nonzero() == 3
    assert names["parts"].support.tolist() == [1, 3]


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
        ({"alpha": torch.ones(2)}, r"alpha must be a number, .* not a tensor of shape \(2,\)"),
        ({"alpha": torch.ones(1, requires_grad=True)}, "not a tensor that requires a gradient"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(arguments, message):
    given = {"scores": torch.zeros(2, 4), "target": torch.tensor([0, 3])} | arguments
    with pytest.raises(ValueError, match=message):
        entmax_loss_parts(**given)


@pytest.mark.parametrize("transform", [torch.vmap, torch.func.grad])
def test_an_alpha_of_a_transform_is_refused_as_it_would_get_no_gradient(transform):
    scores, target = case(rows=1)

    def loss(alpha):
        return entmax_loss(scores, target, alpha).sum()

    alpha = torch.tensor([1.3, 1.6]) if transform is torch.vmap else torch.tensor(1.3)
    with pytest.raises(ValueError, match="alpha must be a number, as the loss has no gradient"):
        transform(loss)(alpha)


def test_a_tensor_of_one_number_can_be_alpha_where_no_gradient_is_asked_for():
    scores, target = case(rows=3)
    expected = entmax_loss(scores, target, 1.25)
    assert torch.equal(entmax_loss(scores, target, torch.tensor(1.25)), expected)
    with torch.no_grad():
        found = entmax_loss(scores, target, torch.nn.Parameter(torch.tensor([1.25])))
    assert torch.equal(found, expected)
