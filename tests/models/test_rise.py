"""``--alpha-warmup-updates`` in training: validation and checkpoints have the current α."""

import copy
import importlib
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_entmax.analysis import value_table
from fairseq_entmax.analysis.document.model_entries import training_records
from fairseq_entmax.fairseq_patches import rising
from fairseq_entmax.head_records import read_record
from fairseq_entmax.models.checkpoint_model import read_model
from fairseq_entmax.pruning import Head, prune_checkpoint
from tests.pruning.test_surgery import state_of
from tests.support import batch, build_model
from tests.training import make_trainer, save, train

SPARSE = {"attn_mapping": "sparsemax", "alpha_warmup_updates": 4}
GATED = {"head_gates": "cross"}
DECIDING = ["--criterion=label_smoothed_cross_entropy_with_head_l0", "--target-heads=3"]
DECIDING += ["--decide-heads-at=4"]
LOSS = ["--criterion=entmax_loss", "--loss-alpha=1.5"]
EPOCH = SimpleNamespace(epoch=1, end_of_epoch=lambda: True, state_dict=lambda: {"epoch": 1})


def alphas(model):
    found = [module.mapping.alpha for module in model.modules() if hasattr(module, "mapping")]
    assert len(set(found)) == 1
    return found[0]


def output(model):
    with torch.no_grad():
        return model.eval()(**batch([9, 7, 4], [6, 8, 3])["net_input"])[0]


@pytest.mark.parametrize(
    "options",
    [
        {"attn_mapping": "entmax:tv=learned|sqpnormmax:p=learned|oscarmax|sparsemax:warmup=3"},
        {"criterion": "entmax_loss", "loss_alpha": 1.5, "loss_alpha_warmup_updates": 4},
    ],
)
def test_every_rise_resumes_bitwise(options, tmp_path):
    options = {**SPARSE, **options}
    trainers = [
        make_trainer(build_model(**options), *(LOSS if "criterion" in options else []))
        for _ in range(2)
    ]
    train(trainers[0], 2)
    trainers[1].load_checkpoint(save(trainers[0], tmp_path / "middle.pt"))
    states = []
    for trainer in trainers:
        train(trainer, 2)
        states.append(trainer.get_model().state_dict())
    assert all(torch.equal(states[1][name], value) for name, value in states[0].items())


@pytest.mark.parametrize("at", [2, 5])
def test_a_checkpoint_has_the_current_alpha_and_resumes_bitwise(at, tmp_path):
    options = {**SPARSE, "save_dir": str(tmp_path)}
    straight = make_trainer(build_model(**options))
    train(straight, at)
    path = save(straight, tmp_path / "middle.pt")
    expected = output(copy.deepcopy(straight.get_model()))
    loaded = build_model(**SPARSE)
    loaded.load_state_dict(torch.load(path)["model"])
    assert torch.equal(output(loaded), expected)
    train(straight, 3)
    record = read_record(tmp_path / "alpha.jsonl")
    resumed = make_trainer(build_model(**options))
    resumed.load_checkpoint(path)
    train(resumed, 3)
    states = [one.get_model().state_dict() for one in (straight, resumed)]
    assert all(torch.equal(states[1][name], value) for name, value in states[0].items())
    assert read_record(tmp_path / "alpha.jsonl") == record
    assert record[0]["alpha"]["cross"]["1"] == [1.0]
    at_end = {"path": tmp_path / "middle.pt", "updates": resumed.get_num_updates()}
    loaded = SimpleNamespace(model=resumed.get_model(), **at_end)
    lines = training_records(loaded)["alpha"]
    assert (lines[0]["values"]["cross"]["1"], lines[-1]["values"]["cross"]["1"]) == ([1.0], [2.0])


def test_a_dense_checkpoint_becomes_sparse_and_a_sparse_one_starts_again(tmp_path):
    dense = make_trainer(build_model("transformer"))
    train(dense, 2)
    for state in (dense.get_model().state_dict(), build_model(**SPARSE).state_dict()):
        model = build_model(**SPARSE)
        model.load_state_dict(state)
        trainer = make_trainer(model)
        if "mapping" not in "".join(state):
            torch.testing.assert_close(output(model), output(dense.get_model()))
        train(trainer, 1)
        assert alphas(model) == 1.25


def test_a_dense_checkpoint_whose_updates_count_is_warned_of(tmp_path, caplog):
    dense = make_trainer(build_model("transformer"))
    train(dense, 3)
    path = save(dense, tmp_path / "dense.pt")
    make_trainer(build_model(**SPARSE)).load_checkpoint(path, reset_optimizer=True)
    assert "sparsity" not in caplog.text
    make_trainer(build_model(**SPARSE)).load_checkpoint(path)
    assert "its 3 updates count as such, so sparsity changes suddenly" in caplog.text


def test_no_checkpoint_from_before_the_end_of_the_rise_stays_best_or_is_the_end(tmp_path, caplog):
    options = [f"--save-dir={tmp_path}", "--keep-best-checkpoints=1", "--max-update=3"]
    trainer = make_trainer(build_model(**SPARSE), *options)
    assert "over 4 updates, but training ends before, at --max-update 3" in caplog.text
    best, lr_losses = [], []
    for loss in (5.0, 3.0, 4.0, 4.5, 4.6, 4.2):  # the rise ends with the fourth
        train(trainer)
        best.append(rising.wait_until_risen(lambda: True))
        checkpoint_utils.save_checkpoint(trainer.cfg.checkpoint, trainer, EPOCH, loss)
        best.append(torch.load(tmp_path / "checkpoint_best.pt")["extra_state"]["val_loss"])
        lr_losses.append(rising.step_without_loss(lambda *given: given[-1], trainer, 0, loss))
    assert best == [False, 5.0, False, 3.0, False, 4.0, True, 4.5, True, 4.5, True, 4.2]
    assert lr_losses == [0, 0, 0, 4.5, 4.6, 4.2]
    assert [path.name for path in tmp_path.glob("*.best_*")] == ["checkpoint.best_loss_4.2000.pt"]
    vars(checkpoint_utils.save_checkpoint).pop("best")


def test_patience_a_plateau_and_the_best_checkpoint_wait_until_heads_are_decided(tmp_path):
    options = [*DECIDING, "--max-update=5", f"--save-dir={tmp_path}", "--keep-best-checkpoints=1"]
    options += ["--lr-scheduler=reduce_lr_on_plateau", "--lr-shrink=0.5"]
    trainer, stops, rates, best = make_trainer(build_model(**GATED), *options), [], [], []
    for loss in (5.0, 6.0, 7.0, 8.0, 9.0):
        train(trainer)
        stops.append(rising.wait_until_risen(lambda: True))
        rates.append(trainer.lr_step(1, loss))
        checkpoint_utils.save_checkpoint(trainer.cfg.checkpoint, trainer, EPOCH, loss)
        best.append(torch.load(tmp_path / "checkpoint_best.pt")["extra_state"]["val_loss"])
    assert stops == [False, False, False, True, True]
    assert rates == [0.01, 0.01, 0.01, 0.01, 0.005]  # the fourth loss is the first to compare with
    assert best == [5.0, 6.0, 7.0, 8.0, 8.0]
    assert [path.name for path in tmp_path.glob("*.best_*")] == ["checkpoint.best_loss_8.0000.pt"]
    vars(checkpoint_utils.save_checkpoint).pop("best")


def test_a_second_training_in_a_process_forgets_the_best_score_of_the_first():
    functions = (
        checkpoint_utils.save_checkpoint,
        importlib.import_module("fairseq_cli.train").should_stop_early,
    )
    for function in functions:
        function.best = 1.0
    make_trainer(build_model("transformer"))
    assert not any(hasattr(function, "best") for function in functions)


@pytest.mark.parametrize(("model", "options"), [(SPARSE, []), (GATED, DECIDING)])
def test_a_training_that_is_resumed_too_early_forgets_its_best_score(model, options, tmp_path):
    trainer = make_trainer(build_model(**model), *options, f"--save-dir={tmp_path}")
    for updates, remembers in ((3, False), (1, True)):
        train(trainer, updates)
        checkpoint_utils.save_checkpoint(trainer.cfg.checkpoint, trainer, EPOCH, 3.0)
        resumed = make_trainer(build_model(**model), *options)
        state = resumed.load_checkpoint(str(tmp_path / "checkpoint_last.pt"))
        assert ("best" in state) == remembers


def test_the_output_alpha_rises_with_that_of_its_loss(tmp_path):
    options = {"criterion": "entmax_loss", "loss_alpha": 1.5, "loss_alpha_warmup_updates": 2}
    model = build_model(**options)
    trainer = make_trainer(model, *LOSS)
    found = []
    for _ in range(3):
        probs = model.get_normalized_probs((output(model), {}), log_probs=False)
        found += [model.output_alpha, bool((probs == 0).any())]
        train(trainer)
    assert (found[::2], found[1]) == ([1.0, 1.25, 1.5], False)
    saved = build_model(output_alpha=1.5, loss_alpha_warmup_updates=2)
    state = torch.load(save(trainer, tmp_path / "some.pt"))["model"]
    state["output_rise.updates"].fill_(1)
    saved.load_state_dict(state)
    assert saved.output_alpha == 1.25
    build_model(output_alpha=1.5).load_state_dict(state)


def test_heads_are_pruned_in_the_middle_of_the_rise(tmp_path):
    trainer = make_trainer(build_model(**SPARSE))
    train(trainer, 2)
    model = trainer.get_model()
    torch.save(state_of(model, **SPARSE), tmp_path / "whole.pt")
    paths = [str(tmp_path / name) for name in ("whole.pt", "small.pt")]
    report = prune_checkpoint(*paths, [Head("cross", 0, 1)])
    small = read_model(paths[1])
    assert {small.mapping(attention).alpha for attention in small.attentions} == {1.5}
    table = value_table.as_table(value_table.model_values(small))
    assert table.count("sparsemax (fixed) (50% risen)") == 6
    assert report.parameters_before == sum(one.numel() for one in model.parameters())


def test_a_moving_average_has_the_alpha_of_the_model():
    trainer = make_trainer(build_model(**SPARSE), "--store-ema", "--ema-update-freq=2")
    train(trainer, 3)
    again = build_model(**SPARSE)
    again.load_state_dict(trainer.ema.get_model().state_dict())
    assert alphas(again) == 1.75
