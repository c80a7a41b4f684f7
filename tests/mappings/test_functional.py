"""Alpha-entmax as functions: values, gradients of any order, masks, dtypes, dimensions, errors."""

import math

import entmax as reference_package
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from fairseq_entmax.kernels import torch_ops
from fairseq_entmax.mappings import (
    entmax,
    entmax15,
    fusedmax,
    oscarmax,
    softmax,
    sparsemax,
    sq_pnorm_max,
)
from fairseq_entmax.mappings.functional import map_scores
from tests.mappings.reference import (
    ALPHAS,
    ROW_LENGTHS,
    SCALES,
    alpha_derivative,
    bisection,
    random_rows,
    scores_derivative,
)
from tests.mappings.structured_cases import largest_error

FUNCTIONS = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "entmax-1.33": lambda scores, dim=-1: entmax(scores, 1.33, dim),
    "entmax-tensor": lambda scores, dim=-1: entmax(scores, torch.tensor(1.33), dim),
    "fusedmax": lambda scores, dim=-1: fusedmax(scores, 0.2, 1.4, dim),
    "oscarmax": lambda scores, dim=-1: oscarmax(scores, 0.1, 1.4, dim),
    "sq_pnorm_max": lambda scores, dim=-1: sq_pnorm_max(scores, 1.6, 0.8, dim),
}
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
every_alpha = pytest.mark.parametrize("alpha", ALPHAS)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INF, NAN = math.inf, math.nan


def score_grid(rows=6):
    """Rows of every length and scale, as float64 tensors ``(rows, keys)``."""
    return [random_rows(rows, n, s, seed=n + int(10 * s)) for n in ROW_LENGTHS for s in SCALES]


# -- values ---------------------------------------------------------------------------


@every_alpha
def test_entmax_equals_bisection_and_the_entmax_package(alpha):
    for scores in score_grid():
        truth = bisection(scores, alpha)
        if alpha > 1:
            package = reference_package.entmax_bisect(scores, alpha, n_iter=100)
            assert largest_error(package, truth) <= 1e-10
        for used in (alpha, torch.tensor(alpha, dtype=torch.float64)):
            assert largest_error(entmax(scores.float(), used), truth) <= 1e-6
            assert largest_error(entmax(scores, used), truth) <= 1e-10


def test_named_mappings_equal_the_exact_algorithms():
    for scores in score_grid():
        for ours, truth in (
            (softmax, torch.softmax),
            (sparsemax, reference_package.sparsemax),
            (entmax15, reference_package.entmax15),
            (entmax, reference_package.entmax15),
        ):
            assert largest_error(ours(scores), truth(scores, dim=-1)) <= 1e-10


@pytest.mark.parametrize(
    ("alpha", "exactly"), [(1.5, reference_package.entmax15), (2.0, reference_package.sparsemax)]
)
def test_the_support_matches_the_exact_algorithms(alpha, exactly):
    sparse_rows = 0
    for seed in range(60):
        scores = random_rows(1, 1 + seed % 6, 1.5, seed=seed)[0]
        truth = exactly(scores, dim=-1).tolist()
        for dtype in (torch.float32, torch.float64):
            probs = entmax(scores.to(dtype), alpha)
            assert [p > 0 for p in probs.tolist()] == [p > 0 for p in truth]
        assert probs.tolist() == pytest.approx(truth, abs=1e-10)
        sparse_rows += 0.0 in truth
    assert sparse_rows > 20  # enough cases are sparse


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("growth", [1.5, 2.0])
@pytest.mark.parametrize("narrowing", [1.5, 3.0])
def test_rows_that_need_many_iterations_are_solved(growth, narrowing, looks, monkeypatch):
    if not looks:  # as on a GPU, which always runs all steps
        monkeypatch.setattr(torch_ops, "TOLERANCE", {torch.float64: -1.0})
    # Two keys share the weight. Groups of keys follow, each larger and farther below the threshold,
    # so that the iteration removes about one group at a time.
    sizes = [2]
    while sum(sizes) < 1024:
        sizes.append(math.ceil(sum(sizes) * (growth - 1.0)))
    scores = [0.0, 0.0]
    for back, size in enumerate(sizes[1:]):
        scores += [-0.5 - 0.45 / narrowing ** (len(sizes) - 2 - back)] * size
    row = torch.tensor(scores).double()
    assert largest_error(sparsemax(row), bisection(row, 2.0)) <= 1e-10


def test_close_scores_take_few_iterations_although_float32_cannot_make_their_sum_1(monkeypatch):
    steps, run = [], torch_ops._power
    monkeypatch.setattr(torch_ops, "_power", lambda *given: steps.append(1) or run(*given))
    torch_ops.probabilities(random_rows(2, 30_000, 1e-3).float(), 0.5)
    assert len(steps) <= 5


# -- gradients --------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.00001, 1.0001, 1.01, 1.33, 1.5, 2.0])
def test_float32_gradients_stay_precise_for_alpha_near_one(alpha):
    # Here the formula of the entmax package loses all digits
    alpha = torch.tensor(alpha, dtype=torch.float32).item()
    for keys, scale in ((7, 1.0), (64, 4.0), (1024, 1.0)):
        scores, grad = random_rows(8, keys, scale, seed=1), random_rows(8, keys, 4.0, 2).round()
        results = []
        for dtype in (torch.float32, torch.float64):
            leaf = scores.to(dtype).requires_grad_()
            alphas = torch.full((8, 1), alpha, dtype=dtype, requires_grad=True)
            probs = entmax(leaf, alphas)
            found = torch.autograd.grad(probs, (leaf, alphas), grad.to(dtype), retain_graph=True)
            # A constant in the incoming gradient costs alpha's gradient few digits
            beside = torch.autograd.grad(probs, alphas, (grad + 1000.0).to(dtype))
            results.append([one.double() for one in (*found, *beside)])
        for narrow, wide in zip(*results, strict=True):
            assert (narrow - wide).abs().max() <= 1.1e-5 * max(1.0, wide.abs().max())


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (2, 1, 1), (1, 3, 1), (2, 3, 1)])
def test_alpha_broadcasts_and_its_gradient_is_summed_over_shared_rows(shape):
    scores, grad = random_rows(6, 7, 1.0, seed=1), random_rows(6, 7, 1.0, seed=2)
    alpha = torch.full(shape, 1.4, dtype=torch.float64, requires_grad=True)
    probs = entmax(scores.view(2, 3, 7), alpha)
    assert largest_error(probs, bisection(scores, 1.4).view(2, 3, 7)) <= 1e-10
    probs.backward(grad.view(2, 3, 7))
    rows = (alpha_derivative(scores, 1.4) * grad).sum(-1).view(2, 3, 1)
    assert alpha.grad.shape == shape
    torch.testing.assert_close(alpha.grad, rows.sum_to_size(shape), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 1.0001, 1.1, 1.5, 1.75, 2.0])
@pytest.mark.parametrize("dim", [0, -1])
def test_first_and_second_derivatives_match_finite_differences(alpha, dim):
    scores = random_rows(4, 5, 1.0, seed=4).requires_grad_()
    alphas = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    inputs = (scores, alphas) if 1 < alpha < 2 else (scores,)

    def function(scores, alphas=alpha):
        return entmax(scores, alphas, dim)

    assert torch.autograd.gradcheck(function, inputs, atol=1e-6, rtol=1e-5)
    assert torch.autograd.gradgradcheck(function, inputs, atol=1e-5, rtol=1e-4)


def test_a_backward_pass_can_be_repeated_and_changes_no_input():
    for alpha in (1.0, 1.25, 1.5, 2.0):
        scores = random_rows(4, 6, 1.0, dtype=torch.float32).requires_grad_()
        probs, grad = entmax(scores, alpha), random_rows(4, 6, 1.0, 2, torch.float32)
        kept = scores.detach().clone(), grad.clone(), probs.detach().clone()
        first = torch.autograd.grad(probs, scores, grad, retain_graph=True)[0]
        assert torch.equal(first, torch.autograd.grad(probs, scores, grad)[0])
        assert all(map(torch.equal, (scores.detach(), grad, probs.detach()), kept))


# -- masks, NaN and infinity -----------------------------------------------------------------


@every_alpha
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_masking_a_key_equals_removing_it_and_gradients_equal_finite_differences(alpha, scale):
    scores, grad = random_rows(10, 13, scale, seed=1), random_rows(10, 13, 1.0, seed=2)
    kept = [0, 3, 4, 6, 8, 9, 10, 12]
    masked = torch.full_like(scores, -INF)
    masked[:, kept] = scores[:, kept]
    masked.requires_grad_()
    alphas = torch.full((10, 1), alpha, dtype=torch.float64, requires_grad=True)
    probs = entmax(masked, alphas)
    assert largest_error(probs[:, kept], bisection(scores[:, kept], alpha)) <= 1e-10
    assert (probs == 0).sum() >= 50
    probs.backward(grad)
    assert (masked.grad[:, [1, 2, 5, 7, 11]] == 0).all()
    truth = scores_derivative(scores[:, kept], alpha, grad[:, kept])
    torch.testing.assert_close(masked.grad[:, kept], truth, atol=1e-7, rtol=1e-7)
    rows = alpha_derivative(scores[:, kept], alpha) * grad[:, kept]
    torch.testing.assert_close(alphas.grad, rows.sum(-1, keepdim=True), atol=1e-6, rtol=1e-6)


@every_function
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_with_every_key_masked_gives_zeros_and_zero_gradients(function, dtype):
    scores = random_rows(3, 6, 1.0, 1, dtype)
    scores[1] = -INF
    scores.requires_grad_()
    probs = function(scores)
    assert probs.dtype == dtype
    assert probs[1].tolist() == [0.0] * 6
    assert probs[[0, 2]].double().sum(-1).tolist() == pytest.approx([1.0, 1.0], abs=1e-2)
    probs.backward(random_rows(3, 6, 1.0, 2, dtype))
    assert scores.grad[1].tolist() == [0.0] * 6
    assert scores.grad[[0, 2]].isfinite().all()


@every_function
@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_score_that_is_not_finite_makes_only_its_row_nan(function, bad):
    scores = random_rows(3, 6, 1.0)
    scores[:, 1] = -INF
    clean = function(scores)
    scores[2, 4] = bad
    scores.requires_grad_()
    probs = function(scores)
    probs.sum().backward()
    for tensor in (probs, scores.grad):
        assert tensor[2].isnan().all()
        assert tensor[:2].isfinite().all()
    assert largest_error(probs[:2], clean[:2]) <= 1e-10


def test_a_nan_alpha_makes_only_its_rows_nan():
    scores = random_rows(12, 7, 2.0).view(1, 3, 4, 7)
    scores[..., 1] = -INF
    scores[0, :, 1] = -INF  # rows without keys stay zero
    scores.requires_grad_()
    alpha = torch.tensor([1.3, NAN, 1.6]).view(3, 1, 1).requires_grad_()
    probs = map_scores(scores, alpha)
    probs.backward(random_rows(12, 7, 1.0, seed=2).view(1, 3, 4, 7))
    for tensor in (probs, scores.grad):
        assert tensor[0, 1, [0, 2, 3]].isnan().all()
        assert (tensor[0, 1, 1] == 0).all()
        assert tensor[:, [0, 2]].isfinite().all()
    assert alpha.grad.view(3).isnan().tolist() == [False, True, False]
    assert map_scores(torch.zeros(2, 3), NAN).isnan().all()


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_gradient_that_is_not_finite_affects_only_its_row(alpha, bad):
    # As in torch.softmax, 0 times NaN or infinity is NaN, so keys outside the support are affected
    for key in (0, 1):
        scores = random_rows(3, 6, 2.0)
        scores[:, 1] = -INF
        scores.requires_grad_()
        grad = random_rows(3, 6, 1.0, seed=2)
        grad[1, key] = bad
        entmax(scores, alpha).backward(grad)
        assert not scores.grad[1].isfinite().any()
        assert scores.grad[[0, 2]].isfinite().all()


# -- precision and shape ------------------------------------------------------------------


@every_function
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(function, dtype):
    scores, grad = random_rows(20, 64, 4.0, dtype=dtype), random_rows(20, 64, 1.0, 2, dtype)
    half, full = scores.clone().requires_grad_(), scores.float().requires_grad_()
    probs, wide = function(half), function(full)
    assert torch.equal(probs, wide.to(dtype))
    probs.backward(grad)
    wide.backward(grad.float())
    assert torch.equal(half.grad, full.grad.to(dtype))


@every_function
@pytest.mark.parametrize("dim", [-3, -2, 0, 1, 2])
def test_every_dimension_can_hold_the_keys(function, dim):
    scores = random_rows(2 * 3, 5, 2.0).view(2, 3, 5)
    keys_last = function(scores.movedim(dim, -1).contiguous())
    assert largest_error(function(scores, dim), keys_last.movedim(-1, dim)) <= 1e-14


@every_function
def test_strided_and_empty_scores_are_mapped(function):
    wide = random_rows(10, 12, 2.0)
    for scores in (wide.t(), wide[::2, 1::3], wide[:, :1].expand(10, 6)):
        assert largest_error(function(scores), function(scores.contiguous())) <= 1e-14
    for shape in ((0,), (0, 4), (3, 0), (2, 0, 3)):
        empty = torch.empty(shape, requires_grad=True)
        function(empty).sum().backward()
        assert empty.grad.shape == shape
    assert entmax(torch.zeros(0, 4), torch.ones(0, 1)).shape == (0, 4)
    for score in (-1e18, 0.0, 88.0, 1e18):
        assert function(torch.full((2, 1), score)).tolist() == [[1.0], [1.0]]


def memory_of(action):
    """Bytes held at the peak and at the end, according to torch's profiler, and the result."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        result = action()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak, held, result


def test_memory_is_a_small_multiple_of_the_scores():
    scores = random_rows(4 * 8 * 64, 64, 1.0, dtype=torch.float32).view(4, 8, 64, 64)
    scores.requires_grad_()
    alpha = torch.linspace(1.0, 2.0, 8).view(8, 1, 1).requires_grad_()
    peak, held, probs = memory_of(lambda: entmax(scores, alpha))
    assert peak <= 4.5 * scores.nbytes
    assert held <= 1.02 * scores.nbytes  # only the probabilities are kept
    peak, _, _ = memory_of(lambda: probs.backward(torch.ones_like(probs)))
    assert peak <= 9.0 * scores.nbytes


@pytest.mark.parametrize(
    ("scores", "alpha", "dim", "message"),
    [
        (torch.zeros(2, 3), 0.999999, -1, "alpha must be from 1 .* to 2 .* not 0.999999"),
        (torch.zeros(2, 3), NAN, -1, "alpha must be from 1 .* to 2 .* not nan"),
        (torch.zeros(2, 3), "1.5", -1, "alpha must be a number or a tensor, not the text"),
        (torch.zeros(2, 3), torch.ones(()).int(), -1, "alpha must be a floating-point tensor"),
        (torch.zeros(2, 3), torch.tensor([[1.2], [2.5]]), -1, "alpha must be from 1 .* not 2.5"),
        (torch.zeros(2, 4), torch.full((3, 1), 1.5), -1, r"\(3, 1\) does not broadcast to \(2, 1"),
        (torch.zeros(2, 4), 1.5, 2, r"dim must be from -2 to 1 .*\(2, 4\), not 2"),
        (torch.zeros(2, 4).int(), 1.5, -1, "scores must be a floating-point tensor, not torch.int"),
        (torch.tensor(1.0), 1.5, -1, "scores must have a dimension for the keys"),
    ],
)
def test_invalid_arguments_are_refused(scores, alpha, dim, message):
    with pytest.raises(ValueError, match=message):
        entmax(scores, alpha, dim)
