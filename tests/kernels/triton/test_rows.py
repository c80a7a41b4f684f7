"""The Triton kernels of the mapping: values, gradients, rows of any length, and which backend runs."""

import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.kernels import torch_ops
from fairseq_entmax.mappings import entmax
from tests.kernels.triton.support import DEVICE, compile_for_h100
from tests.mappings.reference import alpha_derivative, bisection, scores_derivative

pytest.importorskip("triton")
from fairseq_entmax.kernels.triton import rows as triton_rows

EPSILONS = [0.0, 1e-12, 1e-6, 1e-3, 0.1, 0.333, 0.5, 0.75, 0.999, 1.0]
# Around the sizes of tiles
KEYS = [1, 2, 15, 16, 17, 30, 64, 65, 300]


def some_scores(rows, keys, spread, masked=0.1):
    generator = torch.Generator().manual_seed(rows * 1000 + keys)
    scores = torch.randn(rows, keys, generator=generator) * spread
    return scores.masked_fill(torch.rand(rows, keys, generator=generator) < masked, -torch.inf)


def run(scores, epsilon):
    return triton_rows.probabilities(scores.to(DEVICE), epsilon).cpu()


def check_gradients(scores, epsilon, **options):
    """Both gradients against those of torch's operations in float64, from the same probabilities."""
    probs = triton_rows.probabilities(scores.to(DEVICE), epsilon)
    grad = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1))
    for_scores, for_alpha = triton_rows.gradients(probs, epsilon, grad.to(DEVICE), True, True)
    wide = probs.cpu().double()
    rows = torch.as_tensor(epsilon, dtype=torch.float64).cpu().expand(*scores.shape[:-1], 1)
    expected = torch_ops.scores_gradient(wide, rows, grad.double())
    torch.testing.assert_close(for_scores.cpu().double(), expected, atol=1e-5, rtol=0)
    expected = torch_ops.alpha_gradient(wide, rows, grad.double())
    torch.testing.assert_close(for_alpha.cpu().double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("keys", KEYS)
def test_probabilities_and_gradients_are_those_of_float64(keys, epsilon, as_tensor):
    scores = some_scores(19, keys, 2.0)  # no multiple of the rows of a tile
    given = torch.tensor(epsilon, device=DEVICE) if as_tensor else epsilon
    truth = bisection(scores, 1.0 + torch.tensor(epsilon).double())
    torch.testing.assert_close(run(scores, given).double(), truth, atol=1e-6, rtol=0)
    check_gradients(scores, given)


@pytest.mark.parametrize("spread", [0.1, 8.0, 50.0])
@pytest.mark.parametrize("epsilon", [1e-4, 0.333, 0.5, 1.0])
def test_flat_and_peaked_rows_are_solved(epsilon, spread):
    scores = some_scores(16, 40, spread)
    truth = bisection(scores, 1.0 + torch.tensor(epsilon).double())
    torch.testing.assert_close(run(scores, epsilon).double(), truth, atol=1e-6, rtol=0)


@pytest.mark.parametrize("epsilon", [0.0, 0.333, 0.5, 1.0])
def test_rows_longer_than_a_tile_are_passed_over_in_blocks(epsilon, monkeypatch):
    monkeypatch.setattr(triton_rows, "LONGEST_TILE", 64)
    assert not triton_rows.tile_of(150).whole
    scores = some_scores(4, 150, 2.0)
    scores[1] = -torch.inf
    scores[2, 140] = torch.nan
    truth = bisection(scores[[0, 3]], 1.0 + torch.tensor(epsilon).double())
    probs = run(scores, epsilon)
    torch.testing.assert_close(probs[[0, 3]].double(), truth, atol=1e-6, rtol=0)
    assert (probs[1] == 0).all()
    assert probs[2].isnan().all()
    check_gradients(scores[[0, 1, 3]], epsilon)


def test_an_epsilon_that_is_nan_makes_long_rows_nan(monkeypatch):
    monkeypatch.setattr(triton_rows, "LONGEST_TILE", 64)
    scores = some_scores(4, 150, 2.0)
    scores[1] = -torch.inf
    epsilon = torch.tensor([0.3, torch.nan, torch.nan, 0.5])[:, None]
    probs = run(scores, epsilon.to(DEVICE))
    truth = bisection(scores, 1.0 + epsilon.double())
    torch.testing.assert_close(probs[[0, 3]].double(), truth[[0, 3]], atol=1e-6, rtol=0)
    assert (probs[1] == 0).all()
    assert probs[2].isnan().all()


def test_the_longest_row_of_a_tile_and_one_more_key():
    for keys in (8192, 8193):
        scores = some_scores(1, keys, 1.0)
        probs = run(scores, 0.5)
        torch.testing.assert_close(probs.double(), bisection(scores, 1.5), atol=1e-6, rtol=0)


@pytest.mark.parametrize("epsilon", [0.001, 0.5, 0.75])
def test_gradients_equal_finite_differences_of_bisection(epsilon):
    alpha = 1.0 + torch.tensor(epsilon).double().item()
    generator = torch.Generator().manual_seed(0)
    scores, grad = torch.randn(2, 6, 12, generator=generator).unbind()
    probs = triton_rows.probabilities(scores.to(DEVICE), epsilon)
    for_scores, for_alpha = triton_rows.gradients(probs, epsilon, grad.to(DEVICE), True, True)
    truth = scores_derivative(scores.double(), alpha, grad.double())
    torch.testing.assert_close(for_scores.cpu().double(), truth, atol=1e-5, rtol=0)
    truth = (alpha_derivative(scores.double(), alpha) * grad).sum(-1, keepdim=True)
    torch.testing.assert_close(for_alpha.cpu().double(), truth, atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(), (1, 1), (3, 1, 1), (2, 1, 1, 1), (2, 3, 1, 1), (2, 1, 4, 1)])
def test_epsilon_of_any_shape_that_broadcasts_is_that_of_its_rows(shape):
    scores = some_scores(24, 7, 2.0).view(2, 3, 4, 7)
    number = torch.Size(shape).numel()
    epsilon = torch.linspace(0.1, 1.0, number).view(shape)
    if number == 1:
        epsilon = torch.full(shape, 0.3)
    truth = bisection(scores, 1.0 + epsilon.double())
    probs = run(scores, epsilon.to(DEVICE))
    torch.testing.assert_close(probs.double(), truth, atol=1e-6, rtol=0)
    check_gradients(scores, epsilon.to(DEVICE))


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.5, 1.0])
def test_masked_rows_are_zero_and_rows_that_are_no_numbers_stay_so(epsilon):
    scores = some_scores(32, 20, 1.0, masked=0.0)
    scores[3] = -torch.inf
    scores[4, 1] = torch.nan
    scores[5, 2] = torch.inf
    probs = run(scores, epsilon)
    assert (probs[3] == 0).all()
    assert probs[4].isnan().all()
    assert probs[5].isnan().all()
    others = [row for row in range(32) if row not in (3, 4, 5)]
    torch.testing.assert_close(probs[others].sum(-1), torch.ones(29))
    grad = torch.ones_like(probs).to(DEVICE)
    for_scores, for_alpha = triton_rows.gradients(probs.to(DEVICE), epsilon, grad, True, True)
    assert (for_scores[3] == 0).all()
    assert for_alpha[3] == 0
    assert for_scores[4].isnan().any()
    assert for_scores[others].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_computed_in_float32(dtype):
    scores = some_scores(8, 30, 2.0).to(dtype)
    probs = run(scores, 0.3)
    assert probs.dtype == torch.float32
    assert torch.equal(probs, run(scores.float(), 0.3))


def test_any_strides_are_taken(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.TRITON)
    scores = torch.randn(6, 20, 8, device=DEVICE).transpose(0, 2)[::2].requires_grad_()
    probs = entmax(scores, 1.4)
    probs.sum().backward()  # a gradient with stride 0
    torch.testing.assert_close(probs, entmax(scores.detach().contiguous(), 1.4))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (2, 0, 4)])
def test_empty_tensors_are_taken(shape):
    scores = torch.zeros(shape, device=DEVICE)
    probs = triton_rows.probabilities(scores, 0.5)
    assert probs.shape == shape
    for_scores, for_alpha = triton_rows.gradients(probs, 0.5, scores, True, True)
    assert for_scores.shape == shape
    assert for_alpha.shape == (*shape[:-1], 1)


def test_a_gradient_that_is_not_wanted_is_none():
    probs = triton_rows.probabilities(torch.zeros(2, 4, device=DEVICE), 0.5)
    assert triton_rows.gradients(probs, 0.5, probs, True, False)[1] is None
    assert triton_rows.gradients(probs, 0.5, probs, False, True)[0] is None


@pytest.mark.compiles_only
def test_the_kernels_compile_for_an_h100():
    cases = []
    for keys in (30, 128, 1024, 9000):
        tile = triton_rows.tile_of(keys)
        for kind in (0, 1, 2):
            shared = {
                "module": "fairseq_entmax.kernels.triton.rows_kernels",
                "pointer": "*fp32",
                "types": {"grad_alpha_ptr": "*fp32"},
                "options": {"num_warps": tile.warps},
                "aligned": keys in (128, 1024),
            }
            constants = {"KIND": kind, "WHOLE": tile.whole, "CHUNKS": tile.chunks}
            constants |= {"ROWS": tile.rows, "LANES": tile.lanes}
            # Triton compiles a 1 as a constant
            constants |= {"entries": 1} if keys != 128 else {}
            backward = constants | {"FOR_SCORES": True, "FOR_ALPHA": kind == 0}
            cases.append(shared | {"kernel": "forward_kernel", "constants": constants})
            cases.append(shared | {"kernel": "backward_kernel", "constants": backward})
    results = compile_for_h100(cases)
    assert len(results) == len(cases)
    assert all(code > 0 and memory <= 227 * 1024 for code, memory in results)


# --- which backend runs --------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch):
    """As in a new process."""
    monkeypatch.setattr(kernels, "_said", set())
    kernels._why_no_triton.cache_clear()
    yield monkeypatch
    kernels._why_no_triton.cache_clear()


def test_the_switch_forces_triton_and_one_line_of_the_log_says_so(fresh, caplog):
    fresh.setenv(kernels.VARIABLE, kernels.TRITON)
    scores = torch.zeros(3, 4, device=DEVICE)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert kernels.backend_for(scores, 0.5) is triton_rows
    (line,) = [r.getMessage() for r in caplog.records if "alpha-entmax runs" in r.getMessage()]
    assert "Triton" in line
    assert kernels.backend_for(scores.double(), 0.5) is torch_ops


def test_without_triton_the_switch_is_refused_with_the_remedy(fresh):
    fresh.setitem(sys.modules, "triton", None)
    fresh.setenv(kernels.VARIABLE, kernels.TRITON)
    with pytest.raises(RuntimeError, match=r"FAIRSEQ_ENTMAX_KERNEL=triton: .*pip install triton"):
        kernels.backend_for(torch.zeros(3), 0.5)


def test_an_old_triton_is_refused_with_the_remedy(fresh):
    import triton

    fresh.setattr(triton, "__version__", "2.1.0")
    fresh.setenv(kernels.VARIABLE, kernels.TRITON)
    with pytest.raises(RuntimeError, match=r"triton is 2\.1\.0, older than .* --upgrade"):
        kernels.backend_for(torch.zeros(3), 0.5)


def test_kernels_that_do_not_run_leave_the_work_to_torch(fresh, caplog):
    def cannot(*_):
        raise OSError("Failed to find C compiler\nmore")

    fresh.setattr(triton_rows, "probabilities", cannot)
    reason = "its kernels do not run here (OSError: Failed to find C compiler)"
    assert kernels._why_no_triton(torch.device(DEVICE)) == reason
    fresh.setenv(kernels.VARIABLE, kernels.TRITON)
    with pytest.raises(RuntimeError, match="do not run here"):
        kernels.backend_for(torch.zeros(3, device=DEVICE), 0.5)
    fresh.setenv(kernels.VARIABLE, kernels.AUTO)
    with caplog.at_level(logging.INFO):
        on_a_gpu = SimpleNamespace(is_cuda=True, device=torch.device(DEVICE))
        assert kernels.backend_for(on_a_gpu, 0.5) is torch_ops
    (line,) = [r.getMessage() for r in caplog.records if "alpha-entmax runs" in r.getMessage()]
    assert reason in line


def test_a_cpu_tensor_is_refused_without_the_interpreter(fresh):
    fresh.setattr(triton_rows, "INTERPRETED", False)
    fresh.setenv(kernels.VARIABLE, kernels.TRITON)
    with pytest.raises(
        RuntimeError, match=r"is for CUDA devices, not for cpu: .*TRITON_INTERPRET=1"
    ):
        kernels.backend_for(torch.zeros(3), 0.5)


def test_triton_is_imported_only_where_it_is_used():
    code = (
        "import sys, torch\n"
        "from fairseq_entmax.mappings import entmax\n"
        "entmax(torch.zeros(3), 1.5)\n"
        "print('triton' in sys.modules)\n"
    )
    environment = {**os.environ, kernels.VARIABLE: kernels.TORCH}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"
