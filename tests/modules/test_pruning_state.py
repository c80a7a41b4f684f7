"""What head pruning remembers, and that saving, halving and starting anew treat it rightly."""

import pytest
import torch

from fairseq_entmax.modules import PruningState


def begun():
    state = PruningState()
    state.multipliers.copy_(torch.tensor([0.1, 1 / 3, -2e-9], dtype=torch.float64))
    state.start.copy_(torch.tensor([23.97, 1e-3, 7.1], dtype=torch.float64))
    state.set_updates(41)
    return state


def contents(state):
    return {name: buffer.tolist() for name, buffer in state.named_buffers()}


def test_a_new_state_is_that_of_a_training_that_has_not_begun():
    state = PruningState()
    assert contents(state) == {"multipliers": [0.0] * 3, "start": [0.0] * 3, "num_updates": [-1]}
    assert state.updates == 0
    assert not state.is_known


def test_nothing_in_it_is_learned():
    assert list(PruningState().parameters()) == []


@pytest.mark.parametrize("updates", [0, 41])
def test_saving_and_loading_keeps_everything(updates):
    saved, loaded = begun(), PruningState()
    saved.set_updates(updates)
    loaded.load_state_dict(saved.state_dict())
    assert contents(loaded) == contents(saved)
    assert loaded.updates == updates
    assert not loaded.is_known


def test_a_state_that_is_new_is_new_after_loading():
    loaded = begun()
    loaded.load_state_dict(PruningState().state_dict())
    assert contents(loaded) == contents(PruningState())
    assert loaded.updates == 0
    assert not loaded.is_known


def test_a_checkpoint_without_such_a_state_starts_anew():
    state = begun()
    state.load_state_dict({})
    assert contents(state) == contents(PruningState())
    assert not state.is_known


def test_forgetting_goes_back_to_where_a_new_training_is():
    state = begun()
    state.forget()
    assert contents(state) == contents(PruningState())
    assert state.updates == 0
    assert not state.is_known


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_it_stays_in_float64_when_the_model_goes_to_half_precision(dtype):
    state = begun()
    before = contents(state)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), state).to(dtype)
    assert model[0].weight.dtype == dtype
    assert state.multipliers.dtype == state.start.dtype == torch.float64
    assert state.num_updates.dtype == torch.int64
    assert contents(state) == before


def test_it_goes_to_another_device_with_the_model():
    state = begun().to("meta")
    assert {buffer.device.type for buffer in state.buffers()} == {"meta"}
    assert state.multipliers.dtype == torch.float64
