"""Gradients with respect to scores and alpha, their masks, and the memory they take."""

import math
import os

import entmax as reference_package
import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.mappings import entmax, entmax15, softmax, sparsemax
from tests.mappings.reference import (
    ALPHAS,
    alpha_derivative,
    random_rows,
    scores_derivative,
)
from tests.memory import memory_of

INNER_ALPHAS = (1.0001, 1.01, 1.25, 1.5, 1.75, 1.99)
INF = math.inf
FUNCTIONS = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "entmax-1.33": lambda scores: entmax(scores, 1.33),
    "entmax-tensor": lambda scores: entmax(scores, torch.tensor(1.33)),
}
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


def scores_gradient(function, scores, grad):
    leaf = scores.clone().requires_grad_()
    function(leaf).backward(grad.to(scores.dtype))
    return leaf.grad


def alpha_gradient(function, scores, alpha, grad):
    """The gradient of each row's own alpha, ``(rows, 1)``."""
    leaf = torch.full((scores.shape[0], 1), alpha, dtype=scores.dtype).requires_grad_()
    function(scores, leaf).backward(grad.to(scores.dtype))
    return leaf.grad


def relative_error(gradient, truth):
    """Largest error, relative to the largest gradient."""
    return ((gradient.double() - truth).abs().max() / truth.abs().max()).item()


# -- float64 ------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", INNER_ALPHAS)
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_gradcheck_holds_for_scores_and_alpha(alpha, scale):
    scores = random_rows(6, 5, scale).view(2, 3, 5).requires_grad_()
    alphas = torch.full((3, 1), alpha, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(entmax, (scores, alphas), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradcheck_holds_for_scores_at_a_fixed_alpha(alpha):
    scores = random_rows(6, 5, 1.0, seed=4).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: entmax(z, alpha), (scores,), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gradcheck_holds_along_every_dimension(dim):
    scores = random_rows(6, 4, 1.0).view(2, 3, 4).requires_grad_()
    alpha = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda z, a: entmax(z, a, dim), (scores, alpha), atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_scores_gradient_equals_finite_differences_of_bisection(alpha, as_tensor):
    scores, grad = random_rows(10, 8, 1.0, seed=1), random_rows(10, 8, 1.0, seed=2)
    used = torch.tensor(alpha, dtype=torch.float64) if as_tensor else alpha
    gradient = scores_gradient(lambda z: entmax(z, used), scores, grad)
    assert relative_error(gradient, scores_derivative(scores, alpha, grad)) <= 1e-7


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_alpha_gradient_equals_finite_differences_of_bisection(alpha, scale):
    # One-sided at the ends, alpha = 1 and alpha = 2
    scores, grad = random_rows(20, 12, scale, seed=1), random_rows(20, 12, 1.0, seed=2)
    gradient = alpha_gradient(entmax, scores, alpha, grad)
    truth = (alpha_derivative(scores, alpha) * grad).sum(-1, keepdim=True)
    assert relative_error(gradient, truth) <= 1e-6


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (2, 1, 1), (1, 3, 1), (2, 3, 1)])
def test_alpha_gradient_is_summed_over_the_rows_that_share_it(shape):
    scores, grad = random_rows(6, 7, 1.0, seed=1), random_rows(6, 7, 1.0, seed=2)
    alpha = torch.full(shape, 1.4, dtype=torch.float64, requires_grad=True)
    entmax(scores.view(2, 3, 7), alpha).backward(grad.view(2, 3, 7))
    rows = (alpha_derivative(scores, 1.4) * grad).sum(-1).view(2, 3, 1)
    assert alpha.grad.shape == shape
    assert relative_error(alpha.grad, rows.sum_to_size(shape)) <= 1e-6


def test_each_gradient_comes_alone_if_only_one_is_asked_for():
    scores, alpha = random_rows(3, 5, 1.0), torch.full((3, 1), 1.3, dtype=torch.float64)
    grad = random_rows(3, 5, 1.0, seed=2)
    both = scores.clone().requires_grad_(), alpha.clone().requires_grad_()
    entmax(*both).backward(grad)
    assert torch.equal(scores_gradient(lambda z: entmax(z, alpha), scores, grad), both[0].grad)
    assert torch.equal(alpha_gradient(entmax, scores, 1.3, grad), both[1].grad)


# -- float32 ------------------------------------------------------------------------------


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_float32_scores_gradient_is_within_1e_5_of_float64(alpha, as_tensor):
    used = torch.tensor(alpha, dtype=torch.float64) if as_tensor else alpha
    for keys, scale in ((7, 1.0), (64, 0.3), (64, 4.0), (1024, 1.0)):
        scores, grad = random_rows(8, keys, scale, seed=1), random_rows(8, keys, 1.0, seed=2)
        if alpha == 1.0:
            truth = scores_gradient(lambda z: torch.softmax(z, -1), scores, grad)
        elif alpha == 2.0:
            truth = scores_gradient(reference_package.sparsemax, scores, grad)
        else:
            truth = scores_gradient(
                lambda z: reference_package.entmax_bisect(z, alpha, n_iter=100), scores, grad
            )
        gradient = scores_gradient(lambda z: entmax(z, used), scores.float(), grad)
        assert relative_error(gradient, truth) <= 1e-5


@pytest.mark.parametrize("alpha", [*ALPHAS, 1.00001, 1.001])
@pytest.mark.parametrize(("keys", "scale"), [(7, 1.0), (64, 0.3), (64, 4.0), (1024, 1.0)])
def test_float32_alpha_gradient_is_within_1e_5_of_finite_differences(alpha, keys, scale):
    scores, grad = random_rows(16, keys, scale, seed=1), random_rows(16, keys, 1.0, seed=2)
    # The alpha that float32 holds, so that both precisions differentiate at the same place
    alpha = torch.tensor(alpha, dtype=torch.float32).item()
    gradient = alpha_gradient(entmax, scores.float(), alpha, grad)
    truth = (alpha_derivative(scores, alpha) * grad).sum(-1, keepdim=True)
    # At 1.75 a key of (64, 0.3) stands so close to the threshold that its rounding alone is 1e-5
    # where no product and sum are rounded at once, as a GPU does and Triton's interpreter does not
    interpreted = os.environ.get(kernels.VARIABLE) == kernels.TRITON
    assert relative_error(gradient, truth) <= (1.1e-5 if interpreted else 1e-5)


@pytest.mark.parametrize("alpha", [1.0, 1.01, 1.33, 1.5, 2.0])
def test_a_constant_in_the_incoming_gradient_costs_alpha_few_digits(alpha):
    # Whole numbers, so that float32 holds them exactly beside the constant
    scores, grad = random_rows(16, 64, 1.0, seed=1), random_rows(16, 64, 4.0, seed=2).round()
    alpha = torch.tensor(alpha, dtype=torch.float32).item()
    truth = (alpha_derivative(scores, alpha) * grad).sum(-1, keepdim=True)
    gradient = alpha_gradient(entmax, scores.float(), alpha, grad + 1000.0)
    assert relative_error(gradient, truth) <= 1e-5


def test_the_float32_tolerance_tells_the_formula_of_the_entmax_package_apart():
    scores, grad = random_rows(16, 64, 1.0, seed=1), random_rows(16, 64, 1.0, seed=2)
    alpha = torch.tensor(1.0001, dtype=torch.float32).item()
    truth = (alpha_derivative(scores, alpha) * grad).sum(-1, keepdim=True)

    def package(z, a):
        return reference_package.entmax_bisect(z, a, n_iter=50)

    assert relative_error(alpha_gradient(package, scores.float(), alpha, grad), truth) > 1e-2
    assert relative_error(alpha_gradient(entmax, scores.float(), alpha, grad), truth) <= 1e-5


def test_the_finite_differences_agree_with_the_entmax_package_away_from_one():
    scores, grad = random_rows(16, 64, 1.0, seed=1), random_rows(16, 64, 1.0, seed=2)
    for alpha in (1.25, 1.5, 1.75):
        truth = (alpha_derivative(scores, alpha) * grad).sum(-1, keepdim=True)
        package = alpha_gradient(
            lambda z, a: reference_package.entmax_bisect(z, a, n_iter=100), scores, alpha, grad
        )
        assert relative_error(package, truth) <= 1e-6


@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gradients_are_computed_in_float32(alpha, dtype):
    scores, grad = random_rows(8, 40, 2.0, 1, dtype), random_rows(8, 40, 1.0, 2, dtype)
    half, full = scores.clone().requires_grad_(), scores.float().requires_grad_()
    alphas = [torch.tensor(alpha, requires_grad=True) for _ in range(2)]
    entmax(half, alphas[0]).backward(grad)
    entmax(full, alphas[1]).backward(grad.float())
    assert half.grad.dtype == dtype
    assert torch.equal(half.grad, full.grad.to(dtype))
    assert alphas[0].grad.dtype == torch.float32
    assert torch.equal(alphas[0].grad, alphas[1].grad)


# -- masks --------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
def test_masked_keys_get_no_gradient_and_take_no_part_in_it(alpha):
    scores, grad = random_rows(10, 9, 1.0, seed=1), random_rows(10, 9, 1.0, seed=2)
    kept, masked_keys = [0, 3, 4, 8], [1, 2, 5, 6, 7]
    masked = scores.clone()
    masked[:, masked_keys] = -INF
    gradient = scores_gradient(lambda z: entmax(z, alpha), masked, grad)
    assert (gradient[:, masked_keys] == 0.0).all()
    truth = scores_derivative(scores[:, kept], alpha, grad[:, kept])
    assert relative_error(gradient[:, kept], truth) <= 1e-7


@pytest.mark.parametrize("alpha", ALPHAS)
def test_masked_keys_take_no_part_in_the_gradient_of_alpha(alpha):
    scores, grad = random_rows(10, 9, 1.0, seed=1), random_rows(10, 9, 1.0, seed=2)
    kept = [0, 3, 4, 8]
    masked = torch.full_like(scores, -INF)
    masked[:, kept] = scores[:, kept]
    gradient = alpha_gradient(entmax, masked.float(), alpha, grad)
    rows = alpha_derivative(scores[:, kept], alpha) * grad[:, kept]
    assert relative_error(gradient, rows.sum(-1, keepdim=True)) <= 1e-5


@pytest.mark.parametrize("alpha", ALPHAS)
def test_keys_outside_the_support_get_no_gradient(alpha):
    scores = torch.tensor([[0.0, 0.5, -200.0]], dtype=torch.float64)
    grad = random_rows(1, 3, 1.0)
    gradient = scores_gradient(lambda z: entmax(z, alpha), scores, grad)
    assert abs(gradient[0, 2].item()) <= 1e-80  # softmax itself is exp(-200), not 0
    assert gradient[0, 0].item() != 0.0


@every_function
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_row_with_every_key_masked_gets_zero_gradients(function, dtype):
    scores, grad = random_rows(3, 6, 1.0, 1, dtype), random_rows(3, 6, 1.0, 2, dtype)
    alone = scores_gradient(function, scores[[0, 2]], grad[[0, 2]])
    scores[1] = -INF
    gradient = scores_gradient(function, scores, grad)
    assert gradient[1].tolist() == [0.0] * 6
    assert torch.equal(gradient[[0, 2]], alone)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_row_with_every_key_masked_adds_nothing_to_the_gradient_of_alpha(alpha, dtype):
    scores, grad = random_rows(3, 6, 1.0, 1, dtype), random_rows(3, 6, 1.0, 2, dtype)
    scores[1] = -INF
    alphas = torch.full((3, 1), alpha, dtype=torch.float64, requires_grad=True)
    probs = entmax(scores, alphas)
    probs.backward(grad)
    assert probs[1].tolist() == [0.0] * 6
    assert alphas.grad[1].item() == 0.0
    assert alphas.grad.isfinite().all()
    assert (alphas.grad[[0, 2]] != 0.0).all()


@every_function
def test_a_batch_of_masked_rows_only_has_zero_gradients(function):
    gradient = scores_gradient(function, torch.full((2, 3), -INF), torch.ones(2, 3))
    assert gradient.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("alpha", ALPHAS)
def test_nan_among_the_scores_stays_out_of_the_gradients_of_other_rows(alpha):
    scores, grad = random_rows(3, 5, 1.0, seed=1), random_rows(3, 5, 1.0, seed=2)
    clean = scores_gradient(lambda z: entmax(z, alpha), scores[[0, 2]], grad[[0, 2]])
    scores[1, 0] = math.nan
    gradient = scores_gradient(lambda z: entmax(z, alpha), scores, grad)
    assert torch.allclose(gradient[[0, 2]], clean, rtol=0.0, atol=1e-12)
    assert gradient[1].isnan().any()


# -- what backward leaves alone, and edge shapes ------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])
def test_a_second_backward_pass_gives_the_same_gradients(alpha):
    scores = random_rows(4, 6, 1.0, dtype=torch.float32).requires_grad_()
    alphas = torch.full((4, 1), alpha, requires_grad=True)
    for used in (alpha, alphas):
        probs = entmax(scores, used)
        grad = random_rows(4, 6, 1.0, 2, torch.float32)
        kept_grad, kept_probs = grad.clone(), probs.detach().clone()
        first = torch.autograd.grad(probs, scores, grad, retain_graph=True)[0]
        second = torch.autograd.grad(probs, scores, grad)[0]
        assert torch.equal(first, second)
        assert torch.equal(grad, kept_grad)
        assert torch.equal(probs.detach(), kept_probs)


def test_a_gradient_without_storage_of_its_own_is_fine():
    # sum().backward() hands on a gradient of ones with stride 0
    scores = random_rows(4, 6, 1.0).requires_grad_()
    alpha = torch.tensor(1.4, dtype=torch.float64, requires_grad=True)
    (entmax(scores, alpha).sum()).backward()
    # the probabilities sum to one whatever the scores and alpha
    assert scores.grad.abs().max().item() <= 1e-12
    assert abs(alpha.grad.item()) <= 1e-12


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_no_scores_give_empty_gradients_and_none_to_alpha(shape):
    scores = torch.empty(shape, requires_grad=True)
    alpha = torch.tensor(1.5, requires_grad=True)
    entmax(scores, alpha).sum().backward()
    assert scores.grad.shape == shape
    assert alpha.grad.item() == 0.0


@every_function
def test_a_single_key_gets_no_gradient(function):
    gradient = scores_gradient(
        function, torch.tensor([[3.0], [-50.0]]), torch.tensor([[2.0], [5.0]])
    )
    assert gradient.tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_single_key_gives_alpha_no_gradient(alpha):
    gradient = alpha_gradient(entmax, torch.tensor([[3.0], [-50.0]]), alpha, torch.ones(2, 1))
    assert gradient.tolist() == [[0.0], [0.0]]


# -- memory ---------------------------------------------------------------------------------


def test_the_measure_of_memory_counts_what_is_held_at_a_time():
    tensor = torch.zeros(1000, 100)
    size = tensor.nbytes
    peak, held, _ = memory_of(lambda: [tensor + number for number in range(3)])
    assert (peak, held) == pytest.approx((3 * size, 3 * size), rel=0.01)
    peak, held, _ = memory_of(lambda: [(tensor + number).sum() for number in range(3)])
    assert (peak, held) == pytest.approx((size, 0), rel=0.01, abs=1000)


MEMORY_ALPHAS = {
    "1": 1.0,
    "1.33": 1.33,
    "1.5": 1.5,
    "2": 2.0,
    "per-head": torch.linspace(1.0, 2.0, 8).view(8, 1, 1),
}
every_memory_alpha = pytest.mark.parametrize("alpha", MEMORY_ALPHAS.values(), ids=MEMORY_ALPHAS)
every_float = pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])


def memory_case(alpha, dtype):
    """Scores, alpha, and the bytes of one tensor of scores in the dtype computed in."""
    scores = random_rows(4 * 8 * 64, 64, 1.0, dtype=dtype).view(4, 8, 64, 64).requires_grad_()
    if isinstance(alpha, torch.Tensor):
        alpha = alpha.clone().requires_grad_()
    return scores, alpha, scores.numel() * max(4, scores.element_size())


@every_memory_alpha
@every_float
def test_forward_holds_at_most_four_and_a_half_tensors_of_scores(alpha, dtype):
    # the scores in float32 if they are not; the shifted scores, the base and the power
    scores, alpha, size = memory_case(alpha, dtype)
    peak, _, _ = memory_of(lambda: entmax(scores, alpha))
    assert peak <= 4.5 * size


@every_memory_alpha
@every_float
def test_between_forward_and_backward_only_the_probabilities_are_kept(alpha, dtype):
    scores, alpha, size = memory_case(alpha, dtype)
    _, held, probs = memory_of(lambda: entmax(scores, alpha))
    in_half = probs.nbytes if dtype == torch.float16 else 0
    assert held <= 1.02 * size + in_half


@every_memory_alpha
@every_float
def test_backward_holds_at_most_eight_tensors_of_scores(alpha, dtype):
    scores, alpha, size = memory_case(alpha, dtype)
    probs = entmax(scores, alpha)
    grad = torch.ones_like(probs)
    peak, _, _ = memory_of(lambda: probs.backward(grad))
    assert peak <= (8.0 if isinstance(alpha, torch.Tensor) else 3.5) * size
