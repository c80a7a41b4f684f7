"""The Triton kernels match torch's operations in float64, on a GPU or in the interpreter."""

import logging
import sys

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.kernels import torch_structured
from fairseq_entmax.kernels.attention import Inputs
from fairseq_entmax.kernels.inputs import ScoreSettings
from tests.kernels import contract
from tests.kernels.triton.support import DEVICE

pytest.importorskip("triton")
from fairseq_entmax.kernels.triton import attention as triton_attention
from fairseq_entmax.kernels.triton import attention_tiles as tiles
from fairseq_entmax.kernels.triton import rows as triton_rows
from fairseq_entmax.kernels.triton.attention_support import UNIT

# The interpreter is a hundred times slower, so only a GPU runs every case
ON_GPU = DEVICE == "cuda"
EPSILONS = contract.EPSILONS if ON_GPU else (0.0, 1e-9, 0.1, 0.5, 1.0)
LENGTHS = contract.LENGTHS if ON_GPU else (1, 17, 40)
CASES = (
    contract.CASES
    if ON_GPU
    else (
        contract.Case((1, 2, 5, 7, 8)),
        contract.Case((2, 2, 19, 21, 8), padding=True, mask=True, causal=True),
        contract.Case((1, 2, 20, 7, 16), causal=True),  # the first queries see no key
        contract.Case((1, 2, 17, 19, 8), padding=True, dropout=0.3),
        contract.Case((1, 2, 12, 20, 8), padding=True, bad=contract.NAN),
    )
)


@pytest.mark.parametrize("keys", LENGTHS)
def test_rows_match_float64(keys):
    contract.check_rows(triton_rows, contract.batch(keys, epsilons=EPSILONS), device=DEVICE)


@pytest.mark.parametrize("number", [0.5, 1.0])
def test_rows_of_one_epsilon(number):
    made = contract.batch(17, epsilons=(number,))
    contract.check_rows(triton_rows, made, number, DEVICE)


def test_rows_longer_than_a_tile_are_processed_in_blocks(monkeypatch):
    monkeypatch.setattr(triton_rows, "LONGEST_TILE", 64)
    assert not triton_rows.tile_of(150).whole
    made = contract.batch(150, epsilons=(0.33, 1.0))
    contract.check_rows(triton_rows, made, device=DEVICE)


@pytest.fixture(params=["whole", "blocks"])
def passes(request, monkeypatch):
    """Rows held in registers, or in blocks of 16 keys."""
    if request.param == "blocks":
        monkeypatch.setattr(tiles, "MOST_KEYS_IN_REGISTERS", 0)
        monkeypatch.setattr(tiles, "LONG_BLOCK", 16)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.usefixtures("passes")
def test_attention_matches_float64(case):
    epsilon = torch.linspace(0.2, 0.9, case.sizes[1])
    contract.check_attention(triton_attention.attention, case, epsilon, device=DEVICE)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, torch.tensor([1e-6])], ids=str)
def test_attention_with_one_epsilon_matches_float64(epsilon):
    contract.check_attention(triton_attention.attention, CASES[0], epsilon, device=DEVICE)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float16, 1e-2), (torch.bfloat16, 8e-2)])
def test_attention_in_half_precision_matches_float64(dtype, atol):
    case, epsilon = CASES[1], torch.linspace(0.2, 1.0, CASES[1].sizes[1])
    contract.check_attention(triton_attention.attention, case, epsilon, atol, dtype, DEVICE)


# --- tiles without support -----------------------------------------------------------------------

SIDE = UNIT.value
ALL = (True, True, True, True)


def local(queries, keys):
    """Queries that attend to the keys of their own stretch of 16, with noise, and a gradient."""
    draw = torch.Generator().manual_seed(queries)
    made = [torch.randn(1, 2, length, 64, generator=draw) for length in (queries, keys)]
    for one in made:
        places = torch.arange(one.size(2))
        one *= 0.05
        one[:, :, places, places // SIDE] += 5.0
    made += [torch.randn(1, 2, length, 64, generator=draw) for length in (keys, queries)]
    return [one.to(DEVICE) for one in made]


def test_tiles_without_support_are_skipped_without_changing_a_bit():
    query, key, value, grad = local(3 * SIDE - 3, 4 * SIDE - 5)
    epsilon = torch.tensor([0.3, 1.0], device=DEVICE)
    inputs = Inputs(query, key, value, epsilon, ScoreSettings())
    output, (statistics, support) = triton_attention._forward(inputs, True)
    expected = torch.eye(3, 4, dtype=torch.uint8, device=DEVICE).expand(1, 2, 3, 4)
    assert torch.equal(support, expected)
    results = [
        triton_attention._backward(inputs, output, (statistics, marked), grad, ALL)
        for marked in (support, torch.ones_like(support))
    ]
    torch.testing.assert_close(*results, atol=0, rtol=0)
    assert all((one != 0).any() for one in results[0])


# --- which kernel runs ---------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch):
    """The state of a new process."""
    monkeypatch.setattr(kernels, "_logged", set())
    for cached in (kernels._usable, kernels.KERNELS[kernels.TRITON].missing):
        cached.cache_clear()
    yield monkeypatch
    for cached in (kernels._usable, kernels.KERNELS[kernels.TRITON].missing):
        cached.cache_clear()


def test_the_environment_variable_selects_triton_where_it_has_a_kernel(fresh):
    fresh.setenv(kernels.VARIABLE, kernels.TRITON)
    scores = torch.zeros(3, 4, device=DEVICE)
    assert kernels.backend_for(scores, 0.5) is triton_rows
    assert kernels.backend_for(scores.double(), 0.5) is torch_structured
    found = kernels.attention_for(scores, torch.float16, 16)
    assert found is triton_attention.attention
    assert kernels.backend_for(scores, 0.5, "tv") is torch_structured


def test_selecting_triton_without_it_is_refused_with_the_remedy(fresh):
    fresh.setitem(sys.modules, "triton", None)
    fresh.setenv(kernels.VARIABLE, kernels.TRITON)
    with pytest.raises(RuntimeError, match=r"FAIRSEQ_ENTMAX_KERNEL=triton: .*pip install triton"):
        kernels.backend_for(torch.zeros(3), 0.5)


def test_kernels_that_fail_to_run_are_replaced_by_torch(fresh, caplog):
    def cannot(*_):
        raise OSError("Failed to find C compiler\nmore")

    fresh.setattr(triton_rows, "probabilities", cannot)
    reason = "its kernels cannot run here (OSError: Failed to find C compiler)"
    fresh.setenv(kernels.VARIABLE, kernels.AUTO)
    with caplog.at_level(logging.INFO):
        of_triton = kernels.KERNELS[kernels.TRITON]._replace(device=DEVICE)
        fresh.setattr(kernels, "KERNELS", {kernels.TRITON: of_triton})
        assert kernels.backend_for(torch.zeros(3, device=DEVICE), 0.5) is torch_structured
    (line,) = [r.getMessage() for r in caplog.records if "alpha-entmax runs" in r.getMessage()]
    assert reason in line
