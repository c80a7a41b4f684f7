"""The Triton kernels of mappings with structure, against float64 and by their properties."""

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear

from fairseq_entmax.kernels.structure import OSCAR, PNORM, TV
from tests.kernels.triton.support import DEVICE, compile_for_h100
from tests.mappings.reference import bisection

pytest.importorskip("triton")
from fairseq_entmax.kernels.triton import rows as plain_rows
from fairseq_entmax.kernels.triton import structured

inf, nan = torch.inf, torch.nan


# --- references, in float64 ----------------------------------------------------------------------


def prox_tv(scores, strength):
    """Bounded least squares on the dual of each chain: what neighbours pull at each other."""
    result = scores.detach().double().clone()
    for row, bound in zip(result, strength.flatten().tolist(), strict=True):
        places = torch.nonzero(row > -inf).flatten()
        for chain in torch.tensor_split(places, torch.nonzero(places.diff() > 1).flatten() + 1):
            if len(chain) > 1 and bound > 0:
                x = row[chain].numpy()
                differences = np.diff(np.eye(len(x)), axis=0)
                pulls = lsq_linear(differences.T, x, (-bound, bound), method="bvls", tol=1e-14).x
                row[chain] = torch.from_numpy(x - differences.T @ pulls)
    return result


def fusedmax(scores, epsilon, strength):
    rows = (scores.size(0), 1)
    strength = torch.as_tensor(strength, dtype=torch.float64).expand(rows)
    return bisection(prox_tv(scores, strength), torch.as_tensor(epsilon).double() + 1.0)


def sq_pnorm_max(scores, epsilon, gamma):
    """Bisection on the distance s of the largest score to the threshold."""
    scores, top = scores.double(), scores.double().amax(-1, keepdim=True)
    epsilon = torch.as_tensor(epsilon, dtype=torch.float64)
    gamma = torch.as_tensor(gamma, dtype=torch.float64)
    q = 1.0 + 1.0 / epsilon
    low, high = 0.99 * gamma * scores.size(-1) ** (-2.0 / q), gamma
    low, high = low.expand(top.shape), high.expand(top.shape)
    for _ in range(100):
        middle = (low + high) / 2
        v = (1.0 + (scores - top) / middle).clamp(min=0.0)
        norm = (v**q).sum(-1, keepdim=True) ** (2.0 / q - 1.0)
        below = middle * norm * (v ** (q - 1.0)).sum(-1, keepdim=True) < gamma
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    weights = v ** (q - 1.0)
    return weights / weights.sum(-1, keepdim=True)


def differences(function, scores, epsilon, strength, grad, step=1e-6):
    """The three gradients by central differences; epsilon and strength ``(rows, 1)``."""
    scores, epsilon, strength = scores.double(), epsilon.double(), strength.double()

    def along(*moves):
        ends = [
            function(scores + s * moves[0], epsilon + s * moves[1], strength + s * moves[2])
            for s in (step, -step)
        ]
        return ((ends[0] - ends[1]) / (2 * step) * grad.double()).sum(-1, keepdim=True)

    each = torch.eye(scores.size(-1), dtype=torch.float64)
    for_scores = torch.cat([along(move, 0.0, 0.0) for move in each], -1)
    return for_scores, along(0.0, 1.0, 0.0), along(0.0, 0.0, 1.0)


# --- how they are run ----------------------------------------------------------------------------


def scan_by_doubling(scan, inputs):
    """A scan as a GPU does it: in another order than that of the keys, and not key by key."""
    arrays, step = [tensor.handle.data for tensor in inputs], 1
    axis, shape = scan.axis, arrays[0].shape
    place = np.arange(shape[axis]).reshape([-1 if dim == axis else 1 for dim in range(len(shape))])
    while step < shape[axis]:
        sides = [
            scan.to_tensor(side, tensor.dtype)
            for sides in ([np.roll(array, step, axis) for array in arrays], arrays)
            for side, tensor in zip(sides, inputs, strict=True)
        ]
        results = scan.combine_fn.fn(*sides)
        results = results if isinstance(results, tuple) else (results,)
        arrays = [
            np.where(place < step, array, result.handle.data)
            for array, result in zip(arrays, results, strict=True)
        ]
        step *= 2
    return [
        scan.to_tensor(array, tensor.dtype) for array, tensor in zip(arrays, inputs, strict=True)
    ]


@pytest.fixture(autouse=True)
def _scans(monkeypatch):
    if structured.INTERPRETED:
        from triton.runtime.interpreter import ScanOps

        monkeypatch.setattr(ScanOps, "generic_scan", scan_by_doubling)


def some_scores(rows, keys, spread=1.0, masked=0.15):
    generator = torch.Generator().manual_seed(100 * rows + keys)
    scores = torch.randn(rows, keys, generator=generator) * spread
    return scores.masked_fill(torch.rand(rows, keys, generator=generator) < masked, -inf)


def on_device(value):
    return value.to(DEVICE) if isinstance(value, torch.Tensor) else value


def run(scores, kind, epsilon, strength):
    parameters = on_device(epsilon), on_device(strength)
    return structured.probabilities(scores.to(DEVICE), kind, *parameters).cpu()


def run_back(probs, kind, epsilon, strength, masked, grad, wanted=(True, True, True)):
    parameters = on_device(epsilon), on_device(strength), on_device(masked)
    results = structured.gradients(probs.to(DEVICE), kind, *parameters, grad.to(DEVICE), wanted)
    return tuple(result if result is None else result.cpu() for result in results)


def assert_same(result, truth, tolerance):
    torch.testing.assert_close(result.double(), truth.double(), atol=tolerance, rtol=0)


# --- total variation -----------------------------------------------------------------------------

STRENGTHS = torch.tensor([0.0, 1e-3, 0.1, 0.5, 2.0, 1e6])[:, None]


@pytest.mark.parametrize("epsilon", [0.0, 0.333, 0.5, 1.0])
@pytest.mark.parametrize("keys", [1, 2, 17, 32, 40])
def test_probabilities_are_those_of_float64(keys, epsilon):
    scores = some_scores(6, keys)
    assert_same(run(scores, TV, epsilon, STRENGTHS), fusedmax(scores, epsilon, STRENGTHS), 1e-6)


def test_the_order_of_a_scan_does_not_matter(monkeypatch):
    monkeypatch.undo()  # the interpreter's own goes key by key
    scores = some_scores(3, 14)
    strength = torch.tensor([0.1, 0.3, 1.0])[:, None]
    assert_same(run(scores, TV, 0.5, strength), fusedmax(scores, 0.5, strength), 1e-6)


def hard_rows(keys):
    """Ties, a constant, a ramp, a walk, and all of them far from 0."""
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(keys, generator=generator)
    rows = [
        noise.bfloat16().float(),
        noise.round(),
        torch.zeros(keys),
        torch.linspace(-2, 2, keys),
        torch.randn(keys, generator=generator).cumsum(0),
    ]
    return torch.stack([*rows, rows[0] + 1024, rows[4].bfloat16().float()])


@pytest.mark.parametrize("strength", [0.01, 0.125, 1.0, 5.0])
def test_ties_ramps_and_walks_are_solved(strength):
    scores = hard_rows(40)
    assert_same(run(scores, TV, 1.0, strength), fusedmax(scores, 1.0, strength), 4e-6)


@pytest.mark.parametrize("keys", [600, 4096])
def test_long_rows_are_optimal(keys):
    generator = torch.Generator().manual_seed(keys)
    scores = 0.1 * torch.randn(1, keys, generator=generator).cumsum(-1)
    strength = 0.75
    # Softmax tells all there is but the mean, which total variation keeps
    z = run(scores, TV, 0.0, strength).double().log()
    z += scores.double().mean() - z.mean()
    pull = (scores.double() - z).cumsum(-1)[:, :-1]
    step = z.diff()
    assert pull.abs().max() <= strength + 1e-3
    assert (step == 0).sum() > keys / 2
    assert_same(pull[step != 0], -strength * step[step != 0].sign(), 1e-3)


def test_keys_of_a_group_have_the_same_probability_to_the_bit():
    scores = some_scores(6, 30, masked=0.05)
    probs = run(scores, TV, 0.01, 0.5)
    close = prox_tv(scores, torch.full((6, 1), 0.5)).diff().abs() < 1e-9
    assert close.sum() > 40
    assert torch.equal(probs.diff() == 0, close | ((probs[:, 1:] == 0) & (probs[:, :-1] == 0)))


def test_without_a_strength_it_is_entmax_and_so_are_its_gradients():
    scores = some_scores(5, 20).round()  # ties of neighbours, which share nothing
    grad = torch.randn(5, 20, generator=torch.Generator().manual_seed(1))
    for strength in (0.0, torch.zeros(5, 1)):
        probs = run(scores, TV, 0.333, strength)
        plain = plain_rows.probabilities(scores.to(DEVICE), 0.333)
        assert_same(probs, plain.cpu(), 1e-7)
        results = run_back(probs, TV, 0.333, strength, scores == -inf, grad)
        expected = plain_rows.gradients(plain, 0.333, grad.to(DEVICE), True, True)
        for result, truth in zip(results[:2], expected, strict=True):
            assert_same(result, truth.cpu(), 1e-6)


def test_a_mask_parts_chains_and_padding_is_absence():
    scores = some_scores(4, 21, masked=0.0)
    apart = torch.full((4, 30), -inf)
    apart[:, 3:12], apart[:, 14:26] = scores[:, :9], scores[:, 9:]
    probs = run(apart, TV, 1.0, 0.3)
    chains = torch.cat(
        [prox_tv(part, torch.full((4, 1), 0.3)) for part in (scores[:, :9], scores[:, 9:])], -1
    )
    assert_same(torch.cat([probs[:, 3:12], probs[:, 14:26]], -1), bisection(chains, 2.0), 1e-6)
    assert (probs[apart == -inf] == 0).all()


@pytest.mark.parametrize("keys", [9, 40])
def test_gradients_equal_finite_differences(keys):
    scores = some_scores(6, keys)
    epsilon = torch.tensor([0.2, 0.5, 0.9, 0.4, 0.7, 0.3])[:, None]
    strength = torch.tensor([0.03, 0.1, 0.2, 0.3, 0.5, 50.0])[:, None]
    grad = torch.randn(6, keys, generator=torch.Generator().manual_seed(1))
    probs = run(scores, TV, epsilon, strength)
    results = run_back(probs, TV, epsilon, strength, scores == -inf, grad)
    expected = differences(fusedmax, scores.double(), epsilon, strength, grad)
    for result, truth in zip(results, expected, strict=True):
        assert_same(result, truth.masked_fill(truth.isnan(), 0.0), 2e-5)


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_a_row_without_masks_needs_no_mask(epsilon):
    scores = some_scores(4, 12, masked=0.0)
    probs = run(scores, TV, epsilon, 0.2)
    grad = torch.randn(4, 12, generator=torch.Generator().manual_seed(2))
    rows = torch.full((4, 1), epsilon), torch.full((4, 1), 0.2)
    expected = run_back(probs, TV, *rows, scores == -inf, grad)
    for result, truth in zip(run_back(probs, TV, epsilon, 0.2, None, grad), expected, strict=True):
        assert_same(result, truth, 1e-6)


@pytest.mark.parametrize("keys", [6, 40])
def test_the_largest_scores_and_strengths_are_no_nan(keys):
    scores = some_scores(2, keys, masked=0.0)
    scores[:, 1], scores[:, 3] = 3e38, -3e38
    probs = run(scores, TV, 1.0, torch.tensor([0.1, inf])[:, None])
    assert_same(probs[0], torch.eye(keys)[1], 1e-6)
    assert_same(probs[1], torch.full((keys,), 1 / keys), 1e-6)


# --- the squared p-norm --------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("keys", [1, 5, 70])
def test_the_squared_p_norm_is_that_of_float64(keys, epsilon):
    scores = some_scores(6, keys, spread=2.0)
    scores[scores.isinf().all(-1)] = 0.0
    gamma = torch.tensor([1e-3, 0.1, 1.0, 10.0, 1e3, 1e6])[:, None]
    assert_same(run(scores, PNORM, epsilon, gamma), sq_pnorm_max(scores, epsilon, gamma), 1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.8])
def test_gradients_of_the_squared_p_norm_equal_finite_differences(epsilon):
    scores = some_scores(6, 8)
    gamma = torch.tensor([0.5, 1.0, 2.0, 4.0, 8.0, 30.0])[:, None]
    grad = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    rows = torch.full((6, 1), epsilon)
    for given in (epsilon, rows):
        probs = run(scores, PNORM, given, gamma)
        results = run_back(probs, PNORM, given, gamma, None, grad)
        expected = differences(sq_pnorm_max, scores, rows, gamma, grad)
        for result, truth in zip(results, expected, strict=True):
            assert_same(result, truth.masked_fill(truth.isnan(), 0.0), 2e-5)


def test_the_squared_2_norm_is_sparsemax_with_its_gradient():
    scores = some_scores(5, 20)
    probs = run(scores, PNORM, 1.0, 2.0)
    assert_same(probs, bisection(scores / 2.0, 2.0), 1e-6)
    grad = torch.randn(5, 20, generator=torch.Generator().manual_seed(1))
    for_scores, _, _ = run_back(probs, PNORM, 1.0, 2.0, None, grad)
    expected, _ = plain_rows.gradients(probs.to(DEVICE), 1.0, grad.to(DEVICE), True, False)
    assert_same(for_scores, expected.cpu() / 2.0, 1e-6)


def test_equal_scores_have_the_same_probability_to_the_bit():
    scores = some_scores(5, 30).round()
    probs = run(scores, PNORM, 0.5, 3.0)
    same = scores[:, :, None] == scores[:, None]
    assert torch.equal((probs[:, :, None] == probs[:, None]) & same, same)


# --- both ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [8, 40])
@pytest.mark.parametrize("kind", [TV, PNORM])
def test_masked_rows_are_zero_and_rows_that_are_no_numbers_stay_so(kind, keys):
    scores = some_scores(8, keys, masked=0.0)
    epsilon, strength = torch.full((8, 1), 0.5), torch.full((8, 1), 0.3)
    scores[0], scores[3], scores[5] = -inf, -inf, -inf
    scores[1, 2], scores[2, 4] = nan, inf
    epsilon[3:5], strength[5:7] = nan, nan
    probs = run(scores, kind, epsilon, strength)
    assert (probs[[0, 3, 5]] == 0).all()
    assert probs[[1, 2, 4, 6]].isnan().all()
    assert_same(probs[7].sum(), torch.tensor(1.0), 1e-6)
    grad = torch.randn(8, keys, generator=torch.Generator().manual_seed(1))
    for result in run_back(probs, kind, epsilon, strength, scores == -inf, grad):
        assert (result[0] == 0).all()
        assert result[[1, 2, 4, 6]].isnan().all()
        assert result[7].isfinite().all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 1, 1), (2, 1, 1, 1), (2, 1, 4, 1)])
@pytest.mark.parametrize(("kind", "function"), [(TV, fusedmax), (PNORM, sq_pnorm_max)])
def test_parameters_of_any_shape_that_broadcasts_are_those_of_their_rows(kind, function, shape):
    scores = some_scores(24, 5, masked=0.0)
    epsilon = torch.linspace(0.3, 1.0, torch.Size(shape).numel()).view(shape)
    strength = torch.linspace(0.8, 0.2, 3).view(3, 1, 1)
    probs = run(scores.view(2, 3, 4, 5), kind, epsilon, strength)
    rows = [value.expand(2, 3, 4, 1).reshape(24, 1) for value in (epsilon, strength)]
    assert_same(probs.view(24, 5), function(scores, *rows), 1e-6)


@pytest.mark.parametrize("kind", [TV, PNORM])
def test_a_gradient_that_is_not_wanted_is_none(kind):
    scores = some_scores(2, 6, masked=0.0)
    probs = run(scores, kind, 0.5, 0.5)
    whole = run_back(probs, kind, 0.5, 0.5, None, scores)
    for place in range(3):
        wanted = tuple(place == other for other in range(3))
        results = run_back(probs, kind, 0.5, 0.5, None, scores, wanted)
        assert [result is not None for result in results] == list(wanted)
        assert torch.equal(results[place], whole[place])


@pytest.mark.parametrize("kind", [TV, PNORM])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_empty_tensors_are_taken(shape, kind):
    scores = torch.zeros(shape)
    probs = run(scores, kind, 0.5, 0.5)
    results = run_back(probs, kind, 0.5, 0.5, scores == -inf, scores)
    assert [tuple(result.shape) for result in results] == [shape, (shape[0], 1), (shape[0], 1)]


def test_only_float32_rows_that_fit_and_kinds_without_a_sort_are_taken():
    scores = torch.zeros(2, 4, device=DEVICE)
    assert structured.takes(scores, TV)
    assert structured.takes(scores, PNORM)
    assert not structured.takes(scores, OSCAR)
    assert not structured.takes(scores.half(), TV)
    assert not structured.takes(scores.double(), TV)
    assert structured.takes(torch.zeros(1, 4096, device=DEVICE), TV)
    assert not structured.takes(torch.zeros(1, 4097, device=DEVICE), TV)


# Rows of a thread, of a warp with other rows and by itself, of several warps
CASES = [(TV, 30, 0, 80), (TV, 64, 2, 90), (TV, 100, 0, 90), (TV, 1024, 1, 80)]
CASES += [(PNORM, 30, 0, 80), (PNORM, 1024, 1, 90)]


@pytest.mark.compiles_only
def test_the_kernels_compile_for_an_a100_and_an_h100():
    cases = []
    for kind, keys, of_epsilon, architecture in CASES:
        tile = structured.tv_tile_of(keys, 1000) if kind == TV else plain_rows.tile_of(keys)
        shared = {
            "module": f"fairseq_entmax.kernels.triton.{kind}_kernels",
            "pointer": "*fp32",
            "types": {"masked_ptr": "*u8"},
            "options": {"num_warps": tile.warps},
            "aligned": keys in (64, 1024),
            "architecture": architecture,
        }
        constants = {"KIND": of_epsilon, "CHUNKS": tile.chunks, "LANES": tile.lanes}
        constants["ROWS"] = tile.rows
        flags = {"HAS_MASK": True, "FOR_SCORES": True, "FOR_EPSILON": True, "FOR_STRENGTH": True}
        cases.append(shared | {"kernel": f"{kind}_forward_kernel", "constants": constants})
        backward = {"kernel": f"{kind}_backward_kernel", "constants": constants | flags}
        cases.append(shared | backward)
    results = compile_for_h100(cases)
    assert len(results) == len(cases)
    assert all(code > 0 and memory <= 163 * 1024 for code, memory in results)


@pytest.mark.skipif(not structured.THREADS_HAVE_ROWS, reason="Triton deals the tile otherwise")
@pytest.mark.compiles_only
def test_a_thread_has_a_short_row_for_itself():
    tile = structured.tv_tile_of(30, 1000)
    constants = {"KIND": 0, "CHUNKS": tile.chunks, "ROWS": tile.rows, "LANES": tile.lanes}
    case = {
        "module": "fairseq_entmax.kernels.triton.tv_kernels",
        "kernel": "tv_forward_kernel",
        "pointer": "*fp32",
        "types": {},
        "constants": constants,
        "options": {"num_warps": tile.warps},
        "aligned": False,
        "in_words": True,
    }
    ((_, shared, program),) = compile_for_h100([case])
    assert shared == 0
    assert "threadsPerWarp = [1, 32, 1]" in program
    assert "threadsPerWarp = [32, 1, 1]" not in program
