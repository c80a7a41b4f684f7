"""The loss in C: the numbers of torch's own operations in float64."""

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.kernels import torch_losses
from fairseq_entmax.kernels.native import losses as native
from fairseq_entmax.mappings import entmax_loss
from tests.kernels.loss_reference import check, some_rows
from tests.kernels.native.support import needs_compiler
from tests.memory import memory_of

pytestmark = needs_compiler

EPSILONS = [0.1, 0.333, 0.5, 0.75, 0.999, 1.0]
# Around the vector width, and around the parts of which the largest scores are taken
KEYS = [1, 2, 3, 15, 16, 17, 30, 63, 64, 65, 130, 513, 2000]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("keys", KEYS)
def test_losses_and_gradients_are_those_of_torch_in_float64(keys, epsilon, smoothing):
    for spread in (0.0, 0.5, 2.0, 8.0):
        scores, target = some_rows(9, keys, spread)
        check(native.losses, native.gradients, scores, target, epsilon, smoothing)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 1e-3])
def test_close_to_softmax_the_loss_is_that_of_torch_in_float64(epsilon):
    for keys in (5, 300, 5000):
        scores, target = some_rows(9, keys, 1.0)
        check(native.losses, native.gradients, scores, target, epsilon, 0.1)


@pytest.mark.parametrize("offset", [-3000.0, 3000.0])
def test_scores_far_from_zero_have_the_loss_of_their_differences(offset):
    for epsilon in (0.333, 0.5, 1.0):
        scores, target = some_rows(9, 2000, 2.0, offset=offset)
        check(native.losses, native.gradients, scores, target, epsilon, 0.1)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_best_keys_may_all_lie_in_one_part_of_the_row(epsilon):
    """The threshold of the parts is then far below that of the row."""
    scores = torch.zeros(4, 6400)
    scores[:, ::64] = torch.linspace(2.0, 2.2, 100)
    check(native.losses, native.gradients, scores, torch.tensor([0, 64, 65, 6336]), epsilon, 0.0)


def test_the_number_of_threads_changes_nothing():
    scores, target = some_rows(40, 3000, 2.0)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            parts, saved = native.losses(scores, target, 0.5, 0.1)
            grad = native.gradients(scores, target, 0.5, 0.1, saved, torch.ones(40))
            results.append((*parts, grad))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=0, rtol=0, equal_nan=True)


def test_the_gradient_is_the_one_tensor_of_the_size_of_the_scores(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.NATIVE)
    scores, target = some_rows(64, 8000, 2.0, masked=0.0)
    scores.requires_grad_()
    forward, _, loss = memory_of(lambda: entmax_loss(scores, target, 1.5).sum())
    backward, _, _ = memory_of(lambda: torch.autograd.grad(loss, scores))
    assert forward < 0.01 * scores.nbytes
    assert backward < 1.01 * scores.nbytes


def test_the_kernel_is_for_float32_and_alpha_above_one(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.NATIVE)
    assert kernels.losses_for(torch.zeros(2, 3), 0.5) is native
    assert kernels.losses_for(torch.zeros(2, 3), 0.0) is torch_losses
    assert kernels.losses_for(torch.zeros(2, 3).double(), 0.5) is torch_losses
    monkeypatch.setenv(kernels.VARIABLE, kernels.TORCH)
    assert kernels.losses_for(torch.zeros(2, 3), 0.5) is torch_losses
