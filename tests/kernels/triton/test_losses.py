"""The loss in Triton: the numbers of torch's own operations in float64."""

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.kernels import torch_losses
from tests.kernels.loss_reference import check, some_rows
from tests.kernels.triton.support import DEVICE, compile_for_h100

pytest.importorskip("triton")
from fairseq_entmax.kernels.triton import losses as triton_losses
from fairseq_entmax.kernels.triton import rows as triton_rows

EPSILONS = [1e-6, 0.1, 0.333, 0.5, 1.0]


def check_here(scores, target, epsilon, smoothing):
    check(
        *(triton_losses.losses, triton_losses.gradients),
        *(scores, target, epsilon, smoothing, DEVICE),
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("keys", [1, 2, 17, 64, 65, 300])
def test_losses_and_gradients_are_those_of_torch_in_float64(keys, epsilon, smoothing):
    check_here(*some_rows(9, keys, 2.0), epsilon, smoothing)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_rows_longer_than_a_tile_are_passed_over_in_blocks(epsilon, monkeypatch):
    monkeypatch.setattr(triton_rows, "LONGEST_TILE", 64)
    for keys in (150, 192):
        scores, target = some_rows(5, keys, 2.0)
        scores[1] = -torch.inf
        scores[2, 140] = torch.nan
        check_here(scores, target, epsilon, 0.1)


@pytest.mark.parametrize("epsilon", [0.333, 0.5, 1.0])
def test_the_best_keys_may_all_be_the_same_of_each_block(epsilon, monkeypatch):
    """The threshold of the largest of the blocks is then far below that of the row."""
    monkeypatch.setattr(triton_rows, "LONGEST_TILE", 64)
    scores = torch.zeros(2, 640)
    scores[:, 5::64] = torch.linspace(2.0, 2.2, 10)
    check_here(scores, torch.tensor([5, 6]), epsilon, 0.0)


def test_the_kernels_are_for_float32_and_alpha_above_one(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.TRITON)
    scores = torch.zeros(2, 3, device=DEVICE)
    assert kernels.losses_for(scores, 0.5) is triton_losses
    assert kernels.losses_for(scores, 0.0) is torch_losses
    assert kernels.losses_for(scores.double(), 0.5) is torch_losses


@pytest.mark.compiles_only
def test_they_compile_for_an_h100():
    cases = []
    for keys in (30, 1000, 32000):
        tile = triton_rows.tile_of(keys)
        for kind in (0, 1, 2):
            constants = {"KIND": kind, "CHUNKS": tile.chunks, "ROWS": tile.rows}
            constants["LANES"] = tile.lanes
            for name, number in (("sums_kernel", "epsilon_of_all"), ("gradient_kernel", "epsilon")):
                cases.append(
                    {
                        "module": "fairseq_entmax.kernels.triton.losses_kernels",
                        "kernel": name,
                        "pointer": "*fp32",
                        "types": {"target_ptr": "*i64", number: "fp32"},
                        "constants": constants,
                        "aligned": keys == 32000,
                        "options": {"num_warps": tile.warps},
                    }
                )
    results = compile_for_h100(cases)
    assert len(results) == len(cases)
    assert all(code > 0 and memory <= 227 * 1024 for code, memory in results)
