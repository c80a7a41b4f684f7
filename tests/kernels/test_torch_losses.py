"""The loss in torch's operations: the keys that can be in the support alone, or all of them."""

import pytest
import torch

from fairseq_entmax.kernels import torch_losses
from tests.kernels.loss_reference import check, some_rows
from tests.memory import memory_of


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("epsilon", [0.1, 0.333, 0.5, 1.0])
def test_float32_has_the_numbers_of_float64_with_few_keys_and_with_all(epsilon, smoothing):
    for keys, spread in ((5, 1.0), (127, 1.0), (128, 8.0), (2000, 0.01), (2000, 8.0)):
        scores, target = some_rows(9, keys, spread)
        check(torch_losses.losses, torch_losses.gradients, scores, target, epsilon, smoothing)


@pytest.mark.parametrize("epsilon", [0.333, 0.5, 1.0])
def test_the_few_keys_that_are_looked_for_have_all_of_the_support(epsilon, monkeypatch):
    scores, target = some_rows(9, 3000, 2.0)
    scores = scores.double()
    few, saved = torch_losses.losses(scores, target, epsilon, 0.1)
    assert len(saved) == 2
    assert saved[0].size(-1) < 3000 / 4
    grad = torch.ones(9).double()
    found = torch_losses.gradients(scores, target, epsilon, 0.1, saved, grad)
    monkeypatch.setattr(torch_losses, "LARGEST_SHARE", 0)
    whole, saved = torch_losses.losses(scores, target, epsilon, 0.1)
    assert len(saved) == 1
    for part, same in zip(few, whole, strict=True):
        torch.testing.assert_close(part, same, atol=1e-12, rtol=0)
    expected = torch_losses.gradients(scores, target, epsilon, 0.1, saved, grad)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("epsilon", [0.333, 0.5, 1.0])
def test_the_best_keys_may_all_lie_in_one_part_of_the_row(epsilon):
    scores = torch.zeros(3, 6400)
    scores[:, 300:400] = torch.linspace(2.0, 2.2, 100)
    target = torch.tensor([0, 300, 399])
    check(torch_losses.losses, torch_losses.gradients, scores, target, epsilon, 0.0)


def test_backward_makes_one_tensor_of_the_size_of_the_scores():
    scores, target = some_rows(64, 8000, 8.0, masked=0.0)
    _, saved = torch_losses.losses(scores, target, 0.5, 0.0)
    grad = torch.ones(64)
    peak, _, _ = memory_of(lambda: torch_losses.gradients(scores, target, 0.5, 0.0, saved, grad))
    assert peak < 1.05 * scores.nbytes
