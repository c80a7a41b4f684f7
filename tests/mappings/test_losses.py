"""The Fenchel-Young loss: against the entmax package, closed forms, and its gradients."""

import entmax
import pytest
import torch

from fairseq_entmax.mappings.functional import map_scores
from fairseq_entmax.mappings.losses import fenchel_young_loss

ALPHAS = [1.0, 1.0001, 1.2, 1.5, 2.0]


def case(keys=9, rows=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(rows, keys, generator=generator, dtype=torch.float64)
    target = torch.rand(rows, keys, generator=generator, dtype=torch.float64)
    target[target < 0.7] = 0.0
    target[:, 0] += 0.1
    return scores, target / target.sum(-1, keepdim=True)


def loss_of(scores, target, alpha):
    return fenchel_young_loss(scores, map_scores(scores, alpha), target, alpha)


@pytest.mark.parametrize(
    ("alpha", "package"),
    [
        (1.2, entmax.EntmaxBisectLoss(alpha=1.2, n_iter=200, reduction="none")),
        (1.5, entmax.Entmax15Loss(reduction="none")),
        (2.0, entmax.SparsemaxLoss(reduction="none")),
    ],
)
def test_of_one_word_it_is_the_loss_of_the_entmax_package(alpha, package):
    scores, _ = case()
    words = torch.tensor([0, 3, 8, 1, 1, 5])
    target = torch.nn.functional.one_hot(words, scores.size(-1)).double()
    torch.testing.assert_close(
        loss_of(scores, target, alpha), package(scores, words), atol=1e-9, rtol=0
    )


def test_of_softmax_it_is_the_divergence_of_kullback_and_leibler():
    scores, target = case()
    expected = torch.nn.functional.kl_div(scores.log_softmax(-1), target, reduction="none").sum(-1)
    torch.testing.assert_close(loss_of(scores, target, 1.0), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_its_gradient_is_the_difference_of_the_probabilities(alpha):
    scores, target = case()
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss_of(z, target, alpha), (scores,))
    loss_of(scores, target, alpha).sum().backward()
    expected = map_scores(scores.detach(), alpha) - target
    torch.testing.assert_close(scores.grad, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_it_is_zero_where_both_agree_and_positive_elsewhere(alpha):
    scores, target = case()
    probs = map_scores(scores, alpha)
    assert loss_of(scores, probs, alpha).abs().max() < 1e-12
    assert (loss_of(scores, target, alpha) > 1e-3).all()


def test_each_row_may_have_an_alpha_of_its_own():
    scores, target = case(rows=5)
    alphas = torch.tensor(ALPHAS, dtype=torch.float64)
    probs = torch.stack([map_scores(row, alpha) for row, alpha in zip(scores, ALPHAS, strict=True)])
    together = fenchel_young_loss(scores, probs, target, alphas)
    alone = [loss_of(row, wanted, a) for row, wanted, a in zip(scores, target, ALPHAS, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone), atol=1e-12, rtol=0)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_masked_keys_have_no_part_in_it(alpha):
    scores, target = case()
    masked = torch.cat([scores, torch.full((6, 2), -torch.inf, dtype=torch.float64)], -1)
    masked.requires_grad_()
    wider = torch.cat([target, torch.zeros(6, 2, dtype=torch.float64)], -1)
    loss = loss_of(masked, wider, alpha)
    torch.testing.assert_close(loss, loss_of(scores, target, alpha), atol=1e-12, rtol=0)
    loss.sum().backward()
    assert torch.equal(masked.grad[:, -2:], torch.zeros(6, 2, dtype=torch.float64))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_float32_keeps_its_digits(alpha):
    scores, target = case(keys=400)
    wide = loss_of(scores, target, alpha)
    narrow = loss_of(scores.float(), target.float(), alpha)
    torch.testing.assert_close(narrow.double(), wide, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_a_key_outside_the_support_has_a_gradient(alpha):
    scores = torch.tensor([5.0, 0.0, -5.0], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    probs = map_scores(scores, alpha)
    assert probs[2] == 0
    loss_of(scores, target, alpha).backward()
    assert scores.grad[2] == -1
