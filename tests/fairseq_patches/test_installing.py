"""The changes in fairseq help the models of this package, and leave others alone."""

import gc
import importlib
import subprocess
import sys

import pytest
import torch
from fairseq import checkpoint_utils, file_utils
from fairseq.data import TokenBlockDataset
from fairseq.file_io import PathManager
from fairseq.models.ema.ema import EMA
from fairseq.optim import FairseqOptimizer
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.trainer import Trainer
from torch.multiprocessing import ProcessExitedException

from fairseq_entmax import command_errors, compat, kernels
from fairseq_entmax.fairseq_patches import atomic_copies, error_sentences, installing
from fairseq_entmax.kernels.native.library import CannotBuild
from fairseq_entmax.models import EntmaxTransformerModel
from tests.support import batch, build_model
from tests.training import make_trainer, save, train

GATED = "--criterion=cross_entropy_with_head_l0"


def test_updates_are_counted_by_the_last_trainer_of_our_models_while_it_lives():
    first, model = make_trainer(build_model()), build_model()
    assert compat.trainer_num_updates() == 0
    train(first, 2)
    train(make_trainer(build_model("transformer")), 3)
    assert compat.trainer_num_updates() == first.get_num_updates() == 2
    second = make_trainer(model)
    assert compat.trainer_num_updates() == 0
    second.set_num_updates(7)  # as when a checkpoint is restored
    assert compat.trainer_num_updates() == 7
    del second
    gc.collect()
    assert compat.trainer_num_updates() is None
    assert first.get_num_updates() == 2  # it lives


def test_a_model_that_does_not_suit_the_criterion_is_refused_before_training(stopped):
    sentence = "--criterion cross_entropy_with_head_l0 needs a model with head gates: add"
    for model in (build_model(), build_model("transformer")):
        with pytest.raises(ValueError, match=sentence):
            make_trainer(model, GATED, "--l0-weight=0.1")
    given = (make_trainer, model, GATED, "--l0-weight=0.1")
    assert sentence in stopped(*given, command="fairseq-hydra-train")[1]


@pytest.mark.parametrize(("code", "expected"), [(2, SystemExit), (1, ProcessExitedException)])
def test_a_parent_process_exits_like_its_children(code, expected):
    def run(*_):
        raise ProcessExitedException("ended", 0, 1234, code)

    with pytest.raises(expected) as stop:
        error_sentences.end_processes(run)
    assert getattr(stop.value, "code", None) == (2 if expected is SystemExit else None)


def test_commands_that_are_imported_later_are_changed_too():
    code = """
import sys
from multiprocessing import spawn
spawn._fixup_main_from_name("fairseq_cli.train")  # as in a process that python -m starts
import fairseq_entmax.models
from fairseq_cli import eval_lm, train
found = sys.modules["__main__"].main.__globals__["train"], train.train, eval_lm.eval_lm
assert all(hasattr(function, "_is_changed") for function in found), found
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_from_pretrained_names_a_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*absent: from_pretrained"):
        EntmaxTransformerModel.from_pretrained(f"{tmp_path}/absent", "best.pt", str(tmp_path))


@pytest.mark.parametrize("precision", [[], ["--memory-efficient-fp16"]])
def test_a_stock_checkpoints_optimizer_state_is_restored_in_a_grown_model(precision, tmp_path):
    stock = make_trainer(build_model("transformer"), *precision)
    train(stock, 2)
    model = build_model(head_gates="cross")
    grown = make_trainer(model, *precision)
    load_state = FairseqOptimizer.load_state_dict
    grown.load_checkpoint(save(stock, tmp_path / "stock.pt"))
    assert FairseqOptimizer.load_state_dict is load_state
    assert grown.get_num_updates() == 2
    state = grown.optimizer.optimizer.state
    moments = stock.optimizer.optimizer.state
    names = dict(model.named_parameters())
    for name, parameter in stock.get_model().named_parameters():
        assert torch.equal(state[names[name]]["exp_avg"], moments[parameter]["exp_avg"]), name
    new = [value for name, value in names.items() if "alpha" in name or "gate" in name]
    assert len(new) == 8
    assert not any(state.get(value) for value in new)
    train(grown)
    assert all("exp_avg" in state[value] for value in new)


@pytest.mark.parametrize("is_training", [True, False])
def test_a_missing_kernel_gives_a_one_line_error_in_training_and_validation(
    is_training, monkeypatch, stopped, tmp_path
):
    # fairseq saves the model of an interrupted training here
    trainer = make_trainer(build_model(), f"--save-dir={tmp_path}")
    monkeypatch.setenv(kernels.VARIABLE, kernels.NATIVE)
    monkeypatch.setattr(kernels, "_usable", kernels._usable.__wrapped__)  # without the cache
    native = kernels.KERNELS[kernels.NATIVE]._replace(missing=lambda _: "there is no C compiler")
    monkeypatch.setitem(kernels.KERNELS, kernels.NATIVE, native)
    run = (train, trainer) if is_training else (trainer.valid_step, batch([9, 7], [6, 8]))
    status, error = stopped(*run)
    assert status == command_errors.STOPPED
    sentence = "FAIRSEQ_ENTMAX_KERNEL=native: there is no C compiler"
    assert error.startswith(f"fairseq-train: error: {sentence}")


@pytest.mark.parametrize(
    "change", [error_sentences.end_processes, error_sentences.stop_without_kernel]
)
def test_a_failing_compiler_gives_a_one_line_error_in_every_command(change, stopped):
    def main(cfg):
        assert cfg == 3
        raise CannotBuild("the compiler cc failed")

    sentence = "fairseq-train: error: the compiler cc failed\n"
    assert stopped(change, main, 3) == (command_errors.STOPPED, sentence)
    assert change(lambda cfg: cfg, 4) == 4


def test_resuming_gates_with_another_criterion_is_refused_in_one_line(tmp_path, stopped):
    gated = make_trainer(build_model(head_gates="cross"), GATED, "--l0-weight=0.1")
    train(gated)
    path = save(gated, tmp_path / "gated.pt")
    other = make_trainer(build_model(head_gates="cross"))
    with pytest.raises(ValueError, match="was trained with the criterion CrossEntropy"):
        other.load_checkpoint(path)
    line = stopped(other.load_checkpoint, path)[1].splitlines()[-1]
    assert line.startswith(f"fairseq-train: error: {path} was trained with the criterion Cross")
    assert "and this training has CrossEntropyCriterion" in line
    assert "continue with --reset-optimizer" in line
    other.load_checkpoint(path, reset_optimizer=True)  # the remedy
    assert other.get_num_updates() == 0


def test_state_for_more_parameters_is_refused_with_the_remedy(tmp_path):
    whole, model = make_trainer(build_model()), build_model()
    train(whole)
    model.decoder.requires_grad_(False)
    refusal = "is for 93 parameters, but the model trains 35 .* continue with --reset-optimizer"
    with pytest.raises(ValueError, match=refusal):
        make_trainer(model).load_checkpoint(save(whole, tmp_path / "some.pt"))


def test_a_resumed_optimizer_suits_any_factor():
    averages = []
    for factor in (1, 20):
        trainer = make_trainer(build_model(alpha_lr_factor=factor))
        train(trainer)
        alphas = trainer.get_model().decoder.layers[0].encoder_attn.mapping.alpha_logit
        averages.append(trainer.optimizer.optimizer.state[alphas]["exp_avg"])
    torch.testing.assert_close(averages[1], averages[0], rtol=1e-4, atol=0)


def test_an_interrupted_copy_leaves_the_old_checkpoint_whole(tmp_path):
    new, last = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    new.write_text("the new one")
    last.write_text("the old one")

    def half(src, dst, overwrite):
        with open(src) as source, open(dst, "w") as target:
            target.write(source.read(3))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic_copies.copy_whole(half, str(new), str(last), overwrite=True)
    assert last.read_text() == "the old one"
    assert PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_text() == "the new one"
    assert sorted(tmp_path.iterdir()) == [new, last]
    link = tmp_path / "link.pt"
    link.symlink_to(last)
    last.write_text("the old one")
    assert PathManager.copy(str(new), str(link), overwrite=True)
    assert link.is_symlink()
    assert last.read_text() == "the new one"


def test_installing_twice_is_the_same_as_installing_once():
    def changed():
        return (
            *(Trainer.__init__, Trainer.load_checkpoint, EMA.__init__),
            *(checkpoint_utils.load_checkpoint_to_cpu, file_utils.load_archive_file),
            *(SequenceGenerator.generate, SequenceGeneratorWithAlignment.generate),
            command.eval_lm,
            len(sys.meta_path),
        )

    command = importlib.import_module("fairseq_cli.eval_lm")  # changed only once it is imported
    installing.install()
    before = changed()
    installing.install()
    assert changed() == before
    assert all(hasattr(function, "_is_changed") for function in before[:-1])


def test_blocks_of_single_sentences_work_with_every_numpy(monkeypatch):
    monkeypatch.delattr("numpy.compat", raising=False)  # as in NumPy 2.4
    sentences = [torch.tensor([5, 6, 2]), torch.tensor([7, 2])]
    blocks = TokenBlockDataset(sentences, [3, 2], 9, 1, 2, break_mode="eos")
    assert [block.tolist() for block in (blocks[0], blocks[1])] == [[5, 6, 2], [7, 2]]
