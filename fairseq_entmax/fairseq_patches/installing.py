"""Everything that this package changes in fairseq, in one list, made by :func:`install`.

What trains and restores models acts for models of this package alone, which are known by their
attention: beside them, other models train as in fairseq without it. What mends the search and
the evaluation acts where a model gives words probability zero, whatever model it is. What
protects from checkpoints acts for every file that fairseq loads in this process, on purpose:
who opens a checkpoint does not know yet what is in it.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
from torch import nn
from torch.multiprocessing import ProcessExitedException

from fairseq_entmax import compat  # first, for its message where there is no fairseq

# isort: split
from fairseq import checkpoint_utils, file_utils, options
from fairseq.data.fasta_dataset import FastaDataset
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging import metrics
from fairseq.models.ema.ema import EMA
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from fairseq_entmax import kernels
from fairseq_entmax.attention import MultiheadAttention
from fairseq_entmax.checkpoints.archives import replace_by_folder
from fairseq_entmax.checkpoints.literals import evaluate_nothing_in_fairseq
from fairseq_entmax.checkpoints.loading import SafelyLoadingTorch
from fairseq_entmax.exact_search import align_with_zeros, fill_up, reporting, search_with_zeros
from fairseq_entmax.fairseq_patches import moving_averages, unread_weights
from fairseq_entmax.fairseq_patches.optimizer_state import (
    refuse_other_training,
    restoring_grown_models,
)
from fairseq_entmax.fairseq_patches.perplexity import EVALUATION, evaluate_with_zeros
from fairseq_entmax.mappings.rise import rises_of

# fairseq's modules that read a file which the settings in a checkpoint may name
LOADING = (
    "fairseq.checkpoint_utils",
    "fairseq.models.text_to_speech.vocoder",
    "fairseq.models.speech_to_text.xm_transformer",
    "fairseq.data.codedataset",
    "fairseq.modules.quantization.pq.em",
)
logger = logging.getLogger(__name__)


def _generate(main: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``fairseq-generate``, which alone of fairseq's commands does without ``call_main``."""
    return _end_without_traceback(reporting, main, *args, **kwargs)


def _end_when_done(train: Callable[..., Any], cfg: Any, trainer: Trainer, *args: Any) -> Any:
    """``train`` of an epoch that ends a training whose checkpoint has all its updates.

    Without it a training that was killed behind its last checkpoint makes one more update.
    """
    if (
        is_ours(trainer.get_model())
        and 0 < cfg.optimization.max_update <= trainer.get_num_updates()
    ):
        logger.info(
            "the checkpoint has made %d updates: nothing is left", trainer.get_num_updates()
        )
        return [None], True
    return train(cfg, trainer, *args)


# Of fairseq's commands, their functions that train, search or evaluate, and what these become
COMMANDS: dict[str, tuple[str, Callable[..., Any]]] = {
    "fairseq_cli.train": ("train", _end_when_done),
    "fairseq_cli.generate": ("_main", _generate),
    "fairseq_cli.interactive": ("main", reporting),
    EVALUATION: ("eval_lm", evaluate_with_zeros),
}
# fairseq's modules that ask NumPy for its ``compat``. Without it, sentences one by one
# (--sample-break-mode eos, fairseq-interactive of a language model, its sample and score) and
# bucketed batches end in an AttributeError of NumPy's
NUMPY_COMPAT = ("fairseq.data.token_block_dataset", "fairseq.data.language_pair_dataset")


def install() -> None:
    """Change fairseq; once, however often it is called."""
    # For every command that has this package as its --user-dir
    _replace(options, "parse_args_and_arch", _check_options)
    _replace(distributed_utils, "call_main", _end_without_traceback)
    # For models of this package
    _replace(Trainer, "__init__", _check_and_follow)
    _replace(Trainer, "load_checkpoint", _restore_grown_model)
    _replace(Trainer, "train_step", _train_step)
    _replace(Trainer, "valid_step", _stop_without_kernel)
    _replace(EMA, "__init__", _average_no_whole_numbers)
    _replace(checkpoint_utils, "save_checkpoint", _forget_best_while_rising)
    # For models that give words probability zero: fairseq's search fails, or finds fewer
    _replace(SequenceGenerator, "generate", search_with_zeros)
    _replace(SequenceGeneratorWithAlignment, "generate", align_with_zeros)
    _replace(SequenceGeneratorWithAlignment, "_prepare_batch_for_alignment", fill_up)
    # And its evaluation of language models leaves them out
    for module, function, change in _running_commands():
        _replace(module, function, change)
    # For data, where NumPy no longer has what fairseq asks for
    for name in NUMPY_COMPAT:
        vars(importlib.import_module(name))["np"] = compat.NumPyWithCompat("numpy")
    # For all data
    _replace(FastaDataset, "_build_index", _refuse_fasta)
    # For every checkpoint
    _replace(PathManager, "copy", _copy_whole)
    _replace(TranslationTask, "reduce_metrics", _log_no_arrays)
    evaluate_nothing_in_fairseq()
    for name in LOADING:
        # One that is not in this fairseq, or needs what is not installed, loads nothing
        with suppress(ImportError):
            vars(importlib.import_module(name))["torch"] = SafelyLoadingTorch("torch")
    _replace(checkpoint_utils, "load_checkpoint_to_cpu", _refuse_in_one_sentence)
    _replace(file_utils, "load_archive_file", _extract_within_folder)


def _running_commands() -> Iterator[tuple[ModuleType, str, Callable[..., Any]]]:
    """The modules of fairseq's commands that are there, with what is changed in them.

    Importing one would set up logging for the whole process.
    """
    for module in list(sys.modules.values()):
        # Under its own name, or as __main__
        name = getattr(getattr(module, "__spec__", None), "name", None)
        if name in COMMANDS:
            yield module, *COMMANDS[name]


def is_ours(model: nn.Module) -> bool:
    """Whether a model has attention of this package, and so is one of its models."""
    return any(isinstance(module, MultiheadAttention) for module in model.modules())


def _replace(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Have a function of fairseq run ``change``, which gets it first, unless that was done before."""
    original = getattr(owner, name)
    if not hasattr(original, "_is_changed"):

        @functools.wraps(original)
        def changed(*args: Any, **kwargs: Any) -> Any:
            return change(original, *args, **kwargs)

        vars(changed)["_is_changed"] = True
        setattr(owner, name, changed)


def _check_options(parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``parse_args_and_arch`` that ends a command with a sentence on what its options lack."""
    if not compat.running_command() or kwargs.get("suppress_defaults"):
        return parse(*args, **kwargs)
    with compat.stopping_command():
        try:
            return parse(*args, **kwargs)
        except RuntimeError as error:
            if str(error):
                raise
            # fairseq's, which says nothing
            raise ValueError("give --arch, such as --arch entmax_transformer") from error
        except KeyError as error:
            if error.args != (None,):
                raise
            # Of the registry of tasks, by a command that takes none where none is given
            raise ValueError(
                "give --task, that of the training, such as --task translation"
            ) from error


def _end_without_traceback(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``call_main`` that ends as its processes do that :func:`compat.stop_command` has ended.

    Without it a traceback of torch's follows their one sentence.
    """
    # Which says at the level of warnings that it ends the other processes
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    try:
        return _stop_without_kernel(run, *args, **kwargs)
    except ProcessExitedException as error:
        if error.exit_code != compat.STOPPED:
            raise
        sys.exit(compat.STOPPED)


def _stop_without_kernel(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A function of fairseq's that ends a command with a sentence on a kernel that cannot be had.

    Without it the compiler's failure, or a wrong ``FAIRSEQ_ENTMAX_KERNEL``, is the last line of a
    traceback through the first batch.
    """
    try:
        return run(*args, **kwargs)
    except kernels.ERRORS as error:
        compat.stop_command(error)
        raise


def _train_step(step: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.train_step`` as :mod:`unread_weights` has it; see :func:`_stop_without_kernel`.

    A model is told the number of its updates at once. Without it validation, and the checkpoint, have
    the alpha of the update before where alpha rises.
    """
    output = _stop_without_kernel(unread_weights.step_without, step, trainer, *args, **kwargs)
    for rise in rises_of(trainer.get_model()):
        rise.set_num_updates(trainer.get_num_updates())
    return output


def _forget_best_while_rising(
    save: Callable[..., Any], cfg: Any, trainer: Trainer, *args: Any, **kwargs: Any
) -> Any:
    """``save_checkpoint`` for which no model is the best as long as its alpha rises.

    Without it ``checkpoint_best.pt`` may be one from the middle of the rise, denser than asked for.
    """
    best = vars(checkpoint_utils.save_checkpoint)
    is_rising = any(rise.share < 1.0 for rise in rises_of(trainer.get_model()))
    if is_rising:
        best.pop("best", None)
    saved = save(cfg, trainer, *args, **kwargs)
    if is_rising:
        best.pop("best", None)
    return saved


def _check_and_follow(
    init: Callable[..., None],
    trainer: Trainer,
    cfg: Any,
    task: Any,
    model: Any,
    criterion: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    """``Trainer.__init__`` with a look at model and criterion together, which notes the trainer.

    Without it a criterion meets a model without gates only in the first batch, or gates that
    ``--ddp-backend fully_sharded`` hides; and in validation nothing says after how many updates.
    """
    with compat.stopping_command():
        if hasattr(criterion, "check_model"):
            criterion.check_model(model)
        if hasattr(model, "check_criterion"):
            model.check_criterion(criterion)
    init(trainer, cfg, task, model, criterion, *args, **kwargs)
    if is_ours(model):
        compat.follow_trainer(trainer)


def _restore_grown_model(
    load: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any
) -> Any:
    """``Trainer.load_checkpoint`` for a model with parameters that the checkpoint lacks.

    Without it torch refuses the state of the optimizer of a checkpoint from before a model had
    gates or learned alphas; ``--store-ema`` cannot start from a checkpoint without averages; and a
    training that goes on with the penalty on gates, or without, ends in an assertion of fairseq's.
    """
    if not is_ours(trainer.get_model()):
        return load(trainer, *args, **kwargs)
    try:
        with restoring_grown_models(trainer):
            return moving_averages.restore(load, trainer, *args, **kwargs)
    except AssertionError as error:
        with compat.stopping_command():
            refuse_other_training(trainer, error, *args, **kwargs)
        raise


def _average_no_whole_numbers(
    init: Callable[..., None], ema: EMA, model: nn.Module, *args: Any, **kwargs: Any
) -> None:
    """``EMA.__init__`` whose moving average of a model copies the whole numbers in it.

    Without it ``--store-ema`` fails on the decisions of gates, which have no average.
    """
    init(ema, model, *args, **kwargs)
    if is_ours(model):
        moving_averages.copy_whole_numbers(ema, model)


def _refuse_fasta(index: Callable[..., Any], dataset: FastaDataset, path: str) -> NoReturn:
    """``FastaDataset._build_index`` that refuses.

    Without it the name of a data file, and so whoever made the folder, runs a command: fairseq
    hands the name to a shell.
    """
    with compat.stopping_command():
        raise ValueError(
            f"{path}.fasta is not read, as fairseq hands the names of such files to a shell: drop "
            f"--dataset-impl fasta, and give a folder that fairseq-preprocess wrote"
        )


def _copy_whole(
    copy: Callable[..., Any], src_path: str, dst_path: str, overwrite: bool = False
) -> Any:
    """``PathManager.copy`` under another name first, where it replaces a file.

    Without it a training that is killed while it copies its checkpoint to
    ``checkpoint_last.pt`` leaves half of one there, and cannot go on from it.
    """
    if not overwrite or "://" in dst_path:
        return copy(src_path, dst_path, overwrite)
    dst_path = os.path.realpath(dst_path)  # a link stays one
    if os.path.exists(dst_path) and not os.path.isfile(dst_path):
        return copy(src_path, dst_path, overwrite)  # a device is written to, not replaced
    temporary = f"{dst_path}.tmp"
    is_done = copy(src_path, temporary, overwrite)
    if is_done:
        os.replace(temporary, dst_path)
    return is_done


def _log_no_arrays(
    reduce: Callable[..., None], task: TranslationTask, *args: Any, **kwargs: Any
) -> None:
    """``TranslationTask.reduce_metrics`` that logs the counts of ``--eval-bleu`` as plain numbers.

    Without it they are NumPy arrays, which go into checkpoints with the other metrics, and whoever
    loads checkpoints safely refuses them: a training with ``--eval-bleu`` could not go on.
    """
    reduce(task, *args, **kwargs)
    for meters in metrics.get_active_aggregators():
        for name in ("_bleu_counts", "_bleu_totals"):
            meter = meters.get(name)
            if meter is not None:
                meter.val, meter.sum = (np.asarray(x).tolist() for x in (meter.val, meter.sum))


def _refuse_in_one_sentence(load: Callable[..., Any], path: str, *args: Any, **kwargs: Any) -> Any:
    """``load_checkpoint_to_cpu`` that ends a command with the sentence of a refusal.

    ``torch.load`` is replaced for fairseq's modules alone, so the settings are checked as they
    are in the file, before ``--model-overrides``. Without the two torch refuses every checkpoint of
    fairseq's, and advises in a traceback to let it run code.
    """
    evaluate_nothing_in_fairseq()  # in what was imported since, by whatever way
    with compat.stopping_command():
        return load(path, *args, **kwargs)


def _extract_within_folder(load: Callable[..., Any], archive_file: str) -> Any:
    """``load_archive_file`` that extracts an archive into its own folder alone.

    Without it ``from_pretrained("model.tar.gz")`` writes wherever names in the archive say, and
    a folder that is not there ends in a TypeError about None.
    """
    try:
        path = file_utils.cached_path(archive_file, cache_dir=None)
    except OSError as error:
        if "://" in str(archive_file):
            return load(archive_file)  # which says what is missing
        raise FileNotFoundError(
            f"there is no folder {archive_file}: from_pretrained takes the folder of the "
            f"checkpoint, the name of the checkpoint in it, and the folder of the data"
        ) from error
    if os.path.isfile(path):
        replace_by_folder(path)
    return load(archive_file)
