"""What head pruning stores, and how saving, half precision and a new training treat it."""

import pytest
import torch

from fairseq_entmax.attention import PruningState

NEW = {"multipliers": [0.0] * 3, "start": [0.0] * 3, "num_updates": [-1]}


def begun():
    state = PruningState()
    state.multipliers.copy_(torch.tensor([0.1, 1 / 3, -2e-9], dtype=torch.float64))
    state.start.copy_(torch.tensor([23.97, 1e-3, 7.1], dtype=torch.float64))
    state.set_updates(41)
    state.is_decided = True
    return state


def contents(state):
    return {name: buffer.tolist() for name, buffer in state.named_buffers()}


@pytest.mark.parametrize(
    ("begin", "expected", "updates"),
    [
        (lambda state: state.load_state_dict(begun().state_dict()), contents(begun()), 41),
        (lambda state: state.forget(), NEW, 0),
        (lambda state: state.load_state_dict({}), NEW, 0),  # a checkpoint without a pruning state
    ],
)
def test_loading_and_forgetting_set_the_state_that_a_process_starts_with(begin, expected, updates):
    for state in (begun(), PruningState()):
        begin(state)
        assert contents(state) == expected
        assert (state.updates, state.is_known, state.is_decided) == (updates, False, False)
        assert list(state.parameters()) == []  # it has no learned parameters


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_state_stays_in_float64_in_a_half_precision_model(dtype):
    state = begun()
    before = contents(state)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), state).to(dtype)
    assert model[0].weight.dtype == dtype
    assert {buffer.dtype for buffer in state.buffers()} == {torch.float64, torch.int64}
    assert contents(state) == before
    assert {buffer.device.type for buffer in state.to("meta").buffers()} == {"meta"}
