"""Moving averages that start from a checkpoint without any."""

import pytest
import torch
from fairseq import checkpoint_utils

from tests.support import build_model
from tests.training import make_trainer, save, train


def without_averages(arch, path):
    trainer = make_trainer(build_model(arch))
    train(trainer)
    return save(trainer, path)


def test_averages_start_from_the_weights_of_a_checkpoint_without(tmp_path):
    path = without_averages("entmax_transformer", tmp_path / "some.pt")
    load = checkpoint_utils.load_checkpoint_to_cpu
    trainer = make_trainer(build_model(seed=2), "--store-ema", "--ema-fp32")
    trainer.load_checkpoint(path)
    assert checkpoint_utils.load_checkpoint_to_cpu is load
    weights = torch.load(path)["model"]
    average = trainer.ema.get_model().state_dict()
    assert average.keys() == weights.keys()
    for name, value in weights.items():
        assert torch.equal(average[name], value), name
        assert torch.equal(trainer.ema.fp32_params[name], value), name
    train(trainer, 2)
    parameter = "encoder.layers.0.fc1.weight"
    moved = trainer.ema.get_model().state_dict()[parameter]
    assert not torch.equal(moved, weights[parameter])


def test_a_stock_model_is_left_to_fairseq(tmp_path):
    path = without_averages("transformer", tmp_path / "some.pt")
    with pytest.raises(KeyError, match="model"):
        make_trainer(build_model("transformer"), "--store-ema").load_checkpoint(path)


def test_averages_of_a_checkpoint_go_on(tmp_path):
    trainer = make_trainer(build_model(), "--store-ema", "--ema-decay=0.5")
    train(trainer, 3)
    path = save(trainer, tmp_path / "some.pt")
    again = make_trainer(build_model(seed=2), "--store-ema", "--ema-decay=0.5")
    again.load_checkpoint(path)
    for name, value in trainer.ema.get_model().state_dict().items():
        assert torch.equal(again.ema.get_model().state_dict()[name], value), name
    weights = again.get_model().state_dict()
    assert any(
        not torch.equal(value, weights[name])
        for name, value in again.ema.get_model().state_dict().items()
    )
