"""The mapping in C: the numbers of torch's own operations."""

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.kernels import torch_ops
from fairseq_entmax.kernels.native import rows as native
from fairseq_entmax.mappings import entmax
from tests.kernels.native.support import needs_compiler
from tests.memory import memory_of

pytestmark = needs_compiler

EPSILONS = [0.0, 1e-12, 1e-6, 1e-3, 0.1, 0.333, 0.5, 0.75, 0.999, 1.0]
# Around the vector width, and around the lengths at which another loop takes over
KEYS = [1, 2, 3, 15, 16, 17, 30, 63, 64, 65, 96, 97, 130, 513]


def some_scores(rows, keys, spread, dtype=torch.float32, masked=0.1):
    generator = torch.Generator().manual_seed(rows * 1000 + keys)
    scores = torch.randn(rows, keys, generator=generator, dtype=dtype) * spread
    mask = torch.rand(rows, keys, generator=generator) < masked
    return scores.masked_fill(mask, -torch.inf)


def reference(scores, epsilon):
    return torch_ops.probabilities(scores.double(), epsilon.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("keys", KEYS)
def test_probabilities_are_those_of_torch_in_float64(keys, epsilon, dtype):
    for spread in (0.5, 2.0, 8.0):
        scores = some_scores(37, keys, spread, dtype)  # no multiple of the vector width
        row_epsilon = torch.full((37, 1), epsilon, dtype=dtype)
        probs = native.probabilities(scores, row_epsilon)
        tolerance = 1e-6 if dtype == torch.float32 else 1e-11
        expected = reference(scores, row_epsilon)
        torch.testing.assert_close(probs.double(), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("keys", KEYS)
def test_gradients_are_those_of_torch_in_float64(keys, epsilon, dtype):
    scores = some_scores(37, keys, 2.0, dtype)
    row_epsilon = torch.full((37, 1), epsilon, dtype=dtype)
    probs = native.probabilities(scores, row_epsilon)
    grad = torch.randn(37, keys, dtype=dtype, generator=torch.Generator().manual_seed(1))
    for_scores, for_alpha = native.gradients(probs, row_epsilon, grad, True, True)
    wide, wide_epsilon = probs.double(), row_epsilon.double()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-9
    expected = torch_ops.scores_gradient(wide, wide_epsilon, grad.double())
    torch.testing.assert_close(for_scores.double(), expected, atol=tolerance, rtol=0)
    expected = torch_ops.alpha_gradient(wide, wide_epsilon, grad.double())
    torch.testing.assert_close(for_alpha.double(), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("epsilon", [0.0, 0.55, 0.665, 0.8, 0.95])
def test_ties_at_the_top_above_many_other_keys_share_the_row(epsilon):
    scores = torch.full((3, 67), -0.5)
    scores[:, :28] = 0.0
    row_epsilon = torch.full((3, 1), epsilon)
    probs = native.probabilities(scores, row_epsilon)
    torch.testing.assert_close(probs.double(), reference(scores, row_epsilon), atol=1e-6, rtol=0)
    torch.testing.assert_close(probs.sum(-1), torch.ones(3), atol=5e-6, rtol=0)


def test_each_row_has_its_own_epsilon():
    scores = some_scores(48, 20, 2.0)
    row_epsilon = torch.tensor(EPSILONS + [0.2] * 6).repeat(3)[:, None]
    probs = native.probabilities(scores, row_epsilon)
    torch.testing.assert_close(probs.double(), reference(scores, row_epsilon), atol=1e-6, rtol=0)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("keys", [5, 200])
def test_masked_rows_are_zero_and_rows_that_are_no_numbers_stay_so(keys, epsilon):
    scores = some_scores(32, keys, 1.0, masked=0.0)
    scores[3] = -torch.inf
    scores[4, 1] = torch.nan
    scores[5, 2] = torch.inf
    probs = native.probabilities(scores, epsilon)
    assert (probs[3] == 0).all()
    assert probs[4].isnan().all()
    assert probs[5].isnan().all()
    others = [row for row in range(32) if row not in (3, 4, 5)]
    torch.testing.assert_close(probs[others].sum(-1), torch.ones(29))


def test_threads_change_no_bit(monkeypatch):
    scores = some_scores(4096, 30, 2.0)
    grad = torch.randn_like(scores)
    results = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(native, "threads_for", lambda _, threads=threads: threads)
        probs = native.probabilities(scores, 0.3)
        results.append((probs, *native.gradients(probs, 0.3, grad, True, True)))
    for result in results[1:]:
        assert all(torch.equal(*pair) for pair in zip(result, results[0], strict=True))


def test_any_strides_are_taken(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.NATIVE)
    scores = torch.randn(6, 20, 8).transpose(0, 2)[::2].requires_grad_()
    probs = entmax(scores, 1.4)
    probs.backward(torch.ones(()).expand_as(probs))
    torch.testing.assert_close(probs, entmax(scores.detach().contiguous(), 1.4))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (2, 0, 4)])
def test_empty_tensors_are_taken(shape):
    probs = native.probabilities(torch.zeros(shape), 0.5)
    assert probs.shape == shape
    for_scores, for_alpha = native.gradients(probs, 0.5, torch.zeros(shape), True, True)
    assert for_scores.shape == shape
    assert for_alpha.shape == (*shape[:-1], 1)


@pytest.mark.parametrize("shape", [(1024, 8), (256, 30), (64, 512)])
def test_memory_is_that_of_softmax(shape, monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.NATIVE)
    scores = torch.randn(4, 8, *shape, requires_grad=True)
    grad = torch.randn_like(scores)
    alpha = torch.full((8, 1, 1), 1.3, requires_grad=True)

    def peak(mapping):
        scores.grad = alpha.grad = None
        return memory_of(lambda: mapping().backward(grad))[0]

    peak(lambda: entmax(scores, alpha))  # compiles, if need be
    ours = peak(lambda: entmax(scores, alpha)) + native.buffer_bytes(scores)
    assert ours <= 1.2 * peak(lambda: scores.softmax(-1))


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5])
def test_a_traced_mapping_is_right_for_other_scores(alpha, monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.AUTO)
    traced = torch.jit.trace(lambda scores: entmax(scores, alpha), torch.zeros(4, 9))
    scores = some_scores(4, 9, 3.0)
    torch.testing.assert_close(traced(scores), entmax(scores, alpha), atol=1e-6, rtol=0)


def test_forward_mode_differentiation_is_that_of_torch(monkeypatch):
    from torch.autograd import forward_ad

    scores, tangent = torch.randn(3, 4), torch.randn(3, 4)
    results = []
    for backend in (kernels.NATIVE, kernels.TORCH):
        monkeypatch.setenv(kernels.VARIABLE, backend)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(scores, tangent)
            results.append(forward_ad.unpack_dual(entmax(dual, 1.5)).tangent)
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=1e-5)


def test_a_tensor_with_the_negative_bit_is_negated(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.NATIVE)
    scores, grad = torch.randn(5, 6), torch.randn(5, 6)
    expected = entmax(-scores, 1.5)
    torch.testing.assert_close(entmax(torch._neg_view(scores), 1.5), expected, atol=1e-6, rtol=0)
    one, other = (
        native.gradients(expected, 0.5, g, True, False)[0] for g in (torch._neg_view(grad), -grad)
    )
    assert torch.equal(one, other)
