"""What head pruning remembers, and that saving, halving and starting anew treat it rightly."""

import pytest
import torch

from fairseq_entmax.modules import PruningState

NEW = {"multipliers": [0.0] * 3, "start": [0.0] * 3, "num_updates": [-1]}


def begun():
    state = PruningState()
    state.multipliers.copy_(torch.tensor([0.1, 1 / 3, -2e-9], dtype=torch.float64))
    state.start.copy_(torch.tensor([23.97, 1e-3, 7.1], dtype=torch.float64))
    state.set_updates(41)
    state.decided = True
    return state


def contents(state):
    return {name: buffer.tolist() for name, buffer in state.named_buffers()}


def test_saving_and_loading_keeps_everything():
    saved, loaded = begun(), PruningState()
    loaded.load_state_dict(saved.state_dict())
    assert contents(loaded) == contents(saved)
    assert (loaded.updates, loaded.is_known, loaded.decided) == (41, False, False)
    assert list(loaded.parameters()) == []  # nothing in it is learned


@pytest.mark.parametrize(
    "begin",
    [
        lambda state: state.forget(),
        lambda state: state.load_state_dict(PruningState().state_dict()),
        lambda state: state.load_state_dict({}),  # a checkpoint without such a state
    ],
)
def test_a_new_training_begins_as_a_new_state_does(begin):
    state = begun()
    begin(state)
    assert contents(state) == contents(PruningState()) == NEW
    assert (state.updates, state.is_known, state.decided) == (0, False, False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_it_stays_in_float64_when_the_model_goes_to_half_precision(dtype):
    state = begun()
    before = contents(state)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), state).to(dtype)
    assert model[0].weight.dtype == dtype
    assert state.multipliers.dtype == state.start.dtype == torch.float64
    assert state.num_updates.dtype == torch.int64
    assert contents(state) == before
    assert {buffer.device.type for buffer in state.to("meta").buffers()} == {"meta"}
