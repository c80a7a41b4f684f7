"""What is changed in fairseq: for models of this package it helps, for others it is not there."""

import gc
import subprocess
import sys

import pytest
import torch
from fairseq import checkpoint_utils, file_utils
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema.ema import EMA
from fairseq.optim import FairseqOptimizer
from fairseq.trainer import Trainer

from fairseq_entmax import compat, fairseq_changes
from tests.support import build_model
from tests.training import EXTRA_STATE, make_trainer, train

GATED = "--criterion=cross_entropy_with_head_l0"


def test_the_updates_are_those_of_the_trainer_that_was_made_last_as_long_as_it_lives():
    first, model = make_trainer(build_model()), build_model()
    assert compat.trainer_num_updates() == 0
    train(first, 2)
    assert compat.trainer_num_updates() == first.get_num_updates() == 2
    second = make_trainer(model)
    assert compat.trainer_num_updates() == 0
    second.set_num_updates(7)  # as when a checkpoint is restored
    assert compat.trainer_num_updates() == 7
    del second, first
    gc.collect()
    assert compat.trainer_num_updates() is None


def test_the_trainer_of_a_stock_model_is_not_followed():
    ours, stock = make_trainer(build_model()), make_trainer(build_model("transformer"))
    train(stock, 3)
    assert compat.trainer_num_updates() == ours.get_num_updates() == 0


def test_the_updates_that_the_trainer_tells_a_model_before_a_step_are_the_same():
    model, seen = build_model(), []
    trainer = make_trainer(model)
    tell = model.set_num_updates
    model.set_num_updates = lambda updates: seen.append(
        (updates, compat.trainer_num_updates()) or tell(updates)
    )
    train(trainer, 3)
    assert seen == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("command", ["fairseq-hydra-train", "python"])
def test_a_model_that_the_criterion_cannot_take_is_refused_before_any_batch(
    command, monkeypatch, capsys
):
    monkeypatch.setattr("sys.argv", [command])
    monkeypatch.setattr("threading.active_count", lambda: 1)
    expected = SystemExit if command != "python" else ValueError
    for model in (build_model(), build_model("transformer")):
        with pytest.raises(expected):
            make_trainer(model, GATED, "--l0-weight=0.1")
        sentence = "--criterion cross_entropy_with_head_l0 needs a model with head gates: add"
        assert (sentence in capsys.readouterr().err) is (expected is SystemExit)


def test_the_state_of_a_stock_checkpoint_is_restored_by_the_trainer_of_a_grown_model(tmp_path):
    path = str(tmp_path / "stock.pt")
    stock = make_trainer(build_model("transformer"))
    train(stock, 2)
    stock.save_checkpoint(path, EXTRA_STATE)
    model = build_model(head_gates="cross")
    grown = make_trainer(model)
    grown.load_checkpoint(path)
    assert grown.get_num_updates() == 2
    state = grown.optimizer.optimizer.state
    moments = stock.optimizer.optimizer.state
    names = dict(model.named_parameters())
    for name, parameter in stock.get_model().named_parameters():
        assert torch.equal(state[names[name]]["exp_avg"], moments[parameter]["exp_avg"]), name
    assert not [name for name in names if "alpha" in name and state.get(names[name])]
    train(grown)
    assert all("exp_avg" in state[names[name]] for name in names if "alpha" in name)


@pytest.mark.parametrize("arch", ["transformer", "entmax_transformer"])
def test_state_of_other_parameters_is_refused_by_torch_for_a_stock_model_and_else_in_a_sentence(
    arch, tmp_path
):
    path = str(tmp_path / "whole.pt")
    whole = make_trainer(build_model(arch))
    train(whole)
    whole.save_checkpoint(path, EXTRA_STATE)
    model = build_model(arch)
    model.decoder.requires_grad_(False)
    ours = "continue it with --reset-optimizer"
    with pytest.raises(ValueError, match="parameter group") as refusal:
        if arch == "transformer":
            make_trainer(model).load_checkpoint(path)
        else:
            with pytest.raises(ValueError, match=ours):
                make_trainer(model).load_checkpoint(path)
            raise ValueError("parameter group")
    assert ours not in str(refusal.value)


def test_fairseqs_optimizers_are_as_they_were_when_a_model_has_been_restored(tmp_path):
    stock = FairseqOptimizer.load_state_dict
    assert stock.__module__ == "fairseq.optim.fairseq_optimizer"
    trainer = make_trainer(build_model())
    train(trainer)
    trainer.save_checkpoint(str(tmp_path / "some.pt"), EXTRA_STATE)
    trainer.load_checkpoint(str(tmp_path / "some.pt"))
    assert FairseqOptimizer.load_state_dict is stock


def test_the_moving_average_of_a_stock_model_averages_what_it_does_in_stock_fairseq():
    def skipped(model):
        model.register_buffer("steps", torch.tensor([3]))
        return EMA(model, EMAConfig(store_ema=True)).skip_keys

    assert skipped(build_model("transformer")) == set()
    assert skipped(build_model(head_gates="cross")) >= {"steps", "pruning_state.num_updates"}


def test_installing_again_changes_nothing_more():
    def changed():
        return (
            *(Trainer.__init__, Trainer.load_checkpoint, EMA.__init__),
            *(checkpoint_utils.load_checkpoint_to_cpu, file_utils.load_archive_file),
            len(sys.meta_path),
        )

    before = changed()
    fairseq_changes.install()
    assert changed() == before
    assert all(hasattr(function, "_is_changed") for function in before[:-1])


STOCK_BEFORE_AND_AFTER = """
import sys, torch
from argparse import Namespace
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
torch.serialization.add_safe_globals([Namespace])  # as it is, torch reads no such checkpoint
sys.path.insert(0, {root!r})
from tests.training import EXTRA_STATE, make_trainer, train
"""
