"""What is no number, in alpha, scores or incoming gradients, shows the same on every backend."""

import math

import pytest
import torch

from fairseq_entmax.mappings import Entmax
from fairseq_entmax.mappings.functional import map_scores
from tests.mappings.reference import bisection, random_rows, scores_derivative

INF, NAN = math.inf, math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
# Dense rows and sparse ones, which kernels keep in memory differently
every_length = pytest.mark.parametrize("keys", [1, 6, 40])
every_alpha = pytest.mark.parametrize("alpha", [1.0, 1.0001, 1.3, 1.5, 2.0])
ALPHAS = (1.3, NAN, 1.6)
HARMED, UNHARMED = 1, [0, 2]


def attention_scores(keys, dtype=torch.float64):
    """``(batch, heads, queries, keys)``: a key masked, and all keys of a query in each head."""
    scores = random_rows(2 * 3 * 4, keys, 2.0, dtype=dtype).view(2, 3, 4, keys)
    if keys > 1:
        scores[..., 1] = -INF
    scores[0, :, 1] = -INF
    return scores


def has_keys(scores):
    return (scores > -INF).any(-1)


def some_grad(scores):
    grad = random_rows(scores[..., 0].numel(), scores.size(-1), 1.0, seed=2)
    return grad.view(scores.shape)


# -- alpha --------------------------------------------------------------------------------


@every_dtype
@every_length
def test_an_alpha_that_is_nan_makes_every_key_of_its_rows_nan(keys, dtype):
    scores = attention_scores(keys, dtype)
    probs = map_scores(scores, torch.tensor(ALPHAS).view(3, 1, 1))
    rows = has_keys(scores[:, HARMED])
    assert probs[:, HARMED][rows].isnan().all()
    assert (probs[:, HARMED][~rows] == 0).all()


@every_dtype
@every_length
def test_heads_beside_an_alpha_that_is_nan_are_unharmed(keys, dtype):
    scores = attention_scores(keys, dtype)
    probs = map_scores(scores, torch.tensor(ALPHAS).view(3, 1, 1))
    truth = bisection(scores, torch.tensor(ALPHAS).nan_to_num(1.5).view(3, 1, 1))
    tolerance = max(1e-6, torch.finfo(dtype).eps)
    torch.testing.assert_close(
        probs[:, UNHARMED].double(), truth[:, UNHARMED], atol=tolerance, rtol=0
    )


@every_dtype
@every_length
def test_gradients_of_an_alpha_that_is_nan_are_nan_and_those_beside_are_unharmed(keys, dtype):
    results = []
    for alphas in (ALPHAS, (1.3, 1.5, 1.6)):
        scores = attention_scores(keys, dtype).requires_grad_()
        alpha = torch.tensor(alphas).view(3, 1, 1).requires_grad_()
        map_scores(scores, alpha).backward(some_grad(scores).to(dtype))
        results.append((scores.grad, alpha.grad))
    (for_scores, for_alpha), (clean_scores, clean_alpha) = results
    rows = has_keys(attention_scores(keys)[:, HARMED])
    assert for_scores[:, HARMED][rows].isnan().all()
    assert (for_scores[:, HARMED][~rows] == 0).all()
    assert for_alpha[HARMED].isnan().all()
    tolerance = 10 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        for_scores[:, UNHARMED], clean_scores[:, UNHARMED], atol=tolerance, rtol=tolerance
    )
    torch.testing.assert_close(for_alpha[UNHARMED], clean_alpha[UNHARMED], atol=1e-5, rtol=1e-5)


@every_dtype
@every_length
def test_a_number_that_is_nan_is_as_a_tensor_of_it(keys, dtype):
    scores = attention_scores(keys, dtype).requires_grad_()
    probs = map_scores(scores, NAN)
    probs.backward(some_grad(scores).to(dtype))
    rows = has_keys(scores)
    for tensor in (probs, scores.grad):
        assert tensor[rows].isnan().all()
        assert (tensor[~rows] == 0).all()


def test_a_logit_that_is_nan_shows_in_its_head_alone():
    mapping = Entmax(num_alphas=3, alpha_init=1.4)
    with torch.no_grad():
        mapping.alpha_logit[HARMED] = NAN
    probs = mapping(attention_scores(9, torch.float32))
    assert probs[1, HARMED].isnan().all()
    assert probs[:, UNHARMED].isfinite().all()


@pytest.mark.parametrize("alpha", [-INF, -5.0, 0.0, 0.999, 2.001, 4.0, 1e30, INF])
@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_alpha_out_of_range_that_nobody_looks_at_ends_in_some_result(alpha, as_tensor, dtype):
    scores = attention_scores(40, dtype).requires_grad_()
    used = torch.tensor([1.5, alpha, 1.5]).view(3, 1, 1).requires_grad_() if as_tensor else alpha
    probs = map_scores(scores, used)
    probs.backward(some_grad(scores).to(dtype))
    assert probs.shape == scores.grad.shape == scores.shape
    if as_tensor:  # and in no harm to the heads beside it
        truth = bisection(scores, 1.5)
        torch.testing.assert_close(
            probs[:, UNHARMED].double(), truth[:, UNHARMED], atol=1e-6, rtol=0
        )


# -- scores -------------------------------------------------------------------------------


@every_dtype
@every_alpha
@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("keys", [6, 40])
def test_a_score_that_is_nan_or_infinite_makes_its_whole_row_nan(
    bad, keys, alpha, as_tensor, dtype
):
    clean = attention_scores(keys, dtype)
    scores = clean.clone()
    scores[1, 2, 3, 4] = bad
    scores.requires_grad_()
    probs = map_scores(scores, torch.tensor(alpha) if as_tensor else alpha)
    probs.backward(some_grad(scores).to(dtype))
    for tensor in (probs, scores.grad):
        assert tensor[1, 2, 3].isnan().all()
        tensor.data[1, 2, 3] = 0
        assert tensor.isfinite().all()


# -- the incoming gradient ------------------------------------------------------------------


@every_dtype
@every_alpha
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("place", ["largest", "masked", "masked row"])
@pytest.mark.parametrize("keys", [6, 40])
def test_a_gradient_that_is_no_number_leaves_none_in_its_row(bad, place, keys, alpha, dtype):
    # As with torch.softmax: 0 times NaN or infinity is NaN, also for a key without a probability
    scores = attention_scores(keys, dtype).requires_grad_()
    row = (0, 1, 1) if place == "masked row" else (1, 1, 0)
    grad = some_grad(scores).to(dtype)
    probs = map_scores(scores, alpha)
    grad[row][probs[row].argmax() if place == "largest" else 1] = bad
    (gradient,) = torch.autograd.grad(probs, scores, grad)
    assert not gradient[row].isfinite().any()
    gradient[row] = 0
    assert gradient.isfinite().all()


@every_length
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_that_is_no_number_makes_that_of_its_alpha_nan_alone(keys, dtype):
    scores = attention_scores(keys, dtype)
    alpha = torch.tensor([1.3, 1.5, 1.6]).view(3, 1, 1).requires_grad_()
    grad = some_grad(scores).to(dtype)
    grad[1, HARMED, 2, -1] = NAN
    map_scores(scores, alpha).backward(grad)
    assert alpha.grad[HARMED].isnan().all()
    assert alpha.grad[UNHARMED].isfinite().all()


def test_rows_beside_a_gradient_that_is_no_number_are_unharmed():
    scores = attention_scores(40)
    scores[0, :, 1] = 0.0
    grad = some_grad(scores)
    truth = scores_derivative(scores, 1.3, grad)
    grad[1, 1, 0, 3] = NAN
    leaf = scores.float().requires_grad_()
    map_scores(leaf, 1.3).backward(grad.float())
    leaf.grad[1, 1, 0] = truth[1, 1, 0].float()
    torch.testing.assert_close(leaf.grad.double(), truth, atol=1e-5, rtol=0)
