"""The losses of alpha-entmax, compared with the entmax package, closed forms and differences."""

import math
import re
from pathlib import Path

import entmax as package
import pytest
import torch
from torch.nn import functional

from fairseq_entmax.mappings import entmax15_loss, entmax_loss, entmax_loss_parts, sparsemax_loss
from fairseq_entmax.mappings.functional import map_scores
from fairseq_entmax.mappings.losses import fenchel_young_loss
from tests.mappings.reference import bisection

ALPHAS = [1.0, 1.0001, 1.2, 1.5, 2.0]
every_alpha = pytest.mark.parametrize("alpha", ALPHAS)


def case(rows=7, keys=40, spread=3.0, dtype=torch.float64, seed=0):
    """Scores that float32 represents exactly, and targets: best and random keys in turn."""
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(rows, keys, generator=generator)
    target = torch.randint(keys, (rows,), generator=generator)
    target[::2] = scores[::2].argmax(-1)
    return scores.to(dtype), target


def wanted(scores, target, smoothing):
    """q, one key at a time."""
    probs = torch.zeros_like(scores)
    for row, index in enumerate(target):
        seen = (scores[row] > -torch.inf).nonzero().flatten()
        probs[row, seen] = smoothing / max(1, len(seen) - 1)
        probs[row, index] = 1 - smoothing
    return probs


def reference(scores, target, alpha, smoothing=0.0):
    """(p - q) z + H(p) in float64, with p by bisection; without masks."""
    probs = bisection(scores.double(), alpha)
    if alpha == 1.0:
        entropy = -torch.special.xlogy(probs, probs).sum(-1)
    else:
        entropy = (probs - probs**alpha).sum(-1) / (alpha * (alpha - 1))
    difference = probs - wanted(scores.double(), target, smoothing)
    return (difference * scores.double()).sum(-1) + entropy


@every_alpha
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_and_its_derivatives_match_the_definition(alpha, smoothing):
    scores, target = case(rows=4, keys=9)
    scores.requires_grad_()

    def loss(scores):
        return entmax_loss_parts(scores, target, alpha, smoothing).loss

    expected = reference(scores.detach(), target, alpha, smoothing)
    torch.testing.assert_close(loss(scores), expected, atol=1e-9, rtol=0)
    assert torch.autograd.gradcheck(loss, (scores,))
    assert torch.autograd.gradgradcheck(loss, (scores,))
    factors = torch.tensor([0.0, 1.0, -2.0, 5.0]).double()
    (loss(scores) * factors).sum().backward()
    difference = bisection(scores, alpha) - wanted(scores.detach(), target, smoothing)
    torch.testing.assert_close(scores.grad, factors[:, None] * difference, atol=1e-9, rtol=0)


def test_the_loss_matches_the_entmax_package_and_cross_entropy_at_one():
    each = {"reduction": "none"}
    for keys, spread in ((40, 0.1), (40, 10.0), (300, 3.0)):
        scores, target = case(keys=keys, spread=spread)
        for ours, theirs in (
            (entmax_loss(scores, target, 1.33), package.EntmaxBisectLoss(1.33, 200, **each)),
            (entmax15_loss(scores, target), package.Entmax15Loss(**each)),
            (entmax_loss(scores, target), package.Entmax15Loss(**each)),
            (sparsemax_loss(scores, target), package.SparsemaxLoss(**each)),
            (entmax_loss(scores, target, 1.0), torch.nn.CrossEntropyLoss(**each)),
        ):
            torch.testing.assert_close(ours, theirs(scores, target), atol=1e-9, rtol=0)


@pytest.mark.parametrize("alpha", [1.2, 1.33, 1.5, 2.0])
def test_the_loss_is_zero_exactly_where_the_target_leads_by_the_margin(alpha):
    margin = 1 / (alpha - 1)
    scores = torch.tensor([[margin + 1e-3, 0.0, -1.0], [margin - 1e-1, 0.0, -1.0]]).double()
    scores.requires_grad_()
    loss = entmax_loss(scores, torch.zeros(2, dtype=torch.int64), alpha)
    loss.sum().backward()
    assert loss[0] == 0 < loss[1]
    assert not scores.grad[0].any()


@every_alpha
def test_reported_support_and_target_probability_match_the_probabilities(alpha):
    scores, target = case(keys=300)
    parts = entmax_loss_parts(scores.requires_grad_(), target, alpha, 0.1)
    probs = map_scores(scores.detach(), alpha)
    assert torch.equal(parts.support, (probs > 0).sum(-1))
    expected = probs.gather(-1, target[:, None]).squeeze(-1)
    torch.testing.assert_close(parts.target_prob, expected, atol=1e-12, rtol=0)
    assert not parts.target_prob.requires_grad


@pytest.mark.parametrize("alpha", [1.0, 1.33, 1.5, 2.0])
def test_float32_stays_precise_for_rows_of_32000_keys(alpha):
    scores, target = case(rows=3, keys=32000, spread=1.0, dtype=torch.float32)
    scores[1:, :10] += 5.0  # as in a trained model, ten keys stand out
    loss = entmax_loss_parts(scores.requires_grad_(), target, alpha, 0.1).loss
    truth = reference(scores.detach(), target, alpha, 0.1)
    torch.testing.assert_close(loss.double(), truth, atol=0, rtol=1e-5)
    loss.sum().backward()
    difference = bisection(scores, alpha) - wanted(scores.detach().double(), target, 0.1)
    torch.testing.assert_close(scores.grad.double(), difference, atol=1e-5, rtol=0)


def test_masks_nan_and_half_precision_are_handled():
    scores, target = case(rows=4, keys=6)
    scores[0, target[0]] = -torch.inf  # a masked target
    scores[1, (target[1] + 1) % 6] = -torch.inf
    scores[2, 0] = torch.nan
    scores.requires_grad_()
    loss = entmax_loss_parts(scores, target, 1.5, 0.1).loss
    assert loss[0] == torch.inf
    finite = scores.detach()[1] > -torch.inf
    place = finite[: target[1]].sum()
    alone = entmax_loss_parts(scores.detach()[1][finite][None], place[None], 1.5, 0.1).loss
    assert loss[1].item() == pytest.approx(alone.item(), abs=1e-12)
    (followed,) = torch.autograd.grad(loss[1], scores, create_graph=True)
    loss[1:].sum().backward()
    torch.testing.assert_close(followed[1], scores.grad[1])
    assert loss[2].isnan()
    assert scores.grad[2].isnan().all()
    assert (scores.grad[1][~finite] == 0).all()
    assert scores.grad[3].isfinite().all()
    for dtype in (torch.float16, torch.bfloat16):
        half = scores.detach()[3:].to(dtype)
        assert torch.equal(entmax_loss(half, target[3:]), entmax_loss(half.float(), target[3:]))


def test_the_example_in_the_documentation_runs_and_is_correct():
    page = (Path(__file__).parents[2] / "docs" / "losses.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(example, names)
    assert names["loss"][0] == 0 < names["loss"][1]
    assert not names["scores"].grad[0].any()
    assert names["scores"].grad[1].count_nonzero() == 3
    assert names["parts"].support.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 2.5}, "alpha must be from 1 .* not 2.5"),
        ({"label_smoothing": 1.0}, "label_smoothing must be from 0 to below 1, not 1.0"),
        ({"target": torch.tensor([0, 4])}, "target must be from 0 to 3, .* 4 keys, not 4"),
        ({"target": torch.tensor([0, 1]).int()}, "target must be .* torch.int64, not torch.int32"),
        ({"target": torch.tensor([0])}, r"target must have the shape \(2,\), .* not \(1,\)"),
        ({"scores": torch.zeros(2, 4).int()}, "scores must be a floating-point tensor, not"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    given = {"scores": torch.zeros(2, 4), "target": torch.tensor([0, 1])}
    with pytest.raises(ValueError, match=message):
        entmax_loss_parts(**{**given, **arguments})


# -- losses against target probabilities ---------------------------------------------------------


def of_probabilities(scores, target, alpha):
    return fenchel_young_loss(scores, map_scores(scores, alpha), target, alpha)


@every_alpha
def test_a_loss_against_probabilities_has_the_gradient_p_minus_q_and_is_zero_at_p(alpha):
    scores, _ = case(rows=6, keys=9)
    target = torch.rand(6, 9, dtype=torch.float64).clamp(min=0.7) - 0.7
    target[:, 0] += 0.1
    target /= target.sum(-1, keepdim=True)
    scores[:, 8], target[:, 8] = -torch.inf, 0.0  # a masked key
    target /= target.sum(-1, keepdim=True)
    probs = map_scores(scores, alpha)
    assert of_probabilities(scores, probs, alpha).abs().max() < 1e-12
    scores.requires_grad_()
    loss = of_probabilities(scores, target, alpha)
    assert (loss > 1e-3).all()
    loss.sum().backward()
    torch.testing.assert_close(scores.grad, probs - target, atol=1e-12, rtol=0)
    narrow = of_probabilities(scores.detach().float(), target.float(), alpha)
    torch.testing.assert_close(narrow.double(), loss.detach(), atol=2e-6, rtol=2e-6)
    words = torch.tensor([0, 3, 7, 1, 1, 5])
    of_words = of_probabilities(scores, functional.one_hot(words, 9).double(), alpha)
    torch.testing.assert_close(of_words, entmax_loss(scores, words, alpha), atol=1e-9, rtol=0)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_rounding_takes_no_gradient_from_a_loss_near_zero(alpha):
    scores = torch.randn(200, 50, generator=torch.manual_seed(0)) + 1000
    target = map_scores(scores + 1e-3 * torch.randn_like(scores), alpha)
    loss = of_probabilities(scores.requires_grad_(), target, alpha)
    assert (loss == 0).any()  # rounding made it negative
    assert (loss >= 0).all()
    loss.sum().backward()
    torch.testing.assert_close(scores.grad, map_scores(scores, alpha) - target)


def test_softmax_gives_the_kl_divergence_and_each_row_may_have_another_alpha():
    scores, _ = case(rows=5, keys=9)
    target = torch.rand(5, 9, dtype=torch.float64).softmax(-1)
    expected = functional.kl_div(scores.log_softmax(-1), target, reduction="none").sum(-1)
    found = of_probabilities(scores, target, 1.0)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    probs = torch.stack([map_scores(row, alpha) for row, alpha in zip(scores, ALPHAS, strict=True)])
    alphas = torch.tensor(ALPHAS, dtype=torch.float64, requires_grad=True)
    together = fenchel_young_loss(scores, probs, target, alphas)
    alone = [of_probabilities(*row) for row in zip(scores, target, ALPHAS, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone), atol=1e-9, rtol=0)
    assert math.isfinite(together.sum())
    assert not together.requires_grad
