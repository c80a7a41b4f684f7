"""All changes that this package makes in fairseq, in one list; :func:`install` makes them.

Each file beside this one says what breaks without its change, and when it can be removed.

Most changes to training act only on models of this package, which are known by their attention.
Those to the search and the evaluation act on any model that gives words probability zero. The
rest act on every training, data set and checkpoint in this process: Adam's results stay the same,
and checkpoints are checked whatever their model, as whoever opens one does not yet know what is
in it.
"""

import sys
from typing import Any

from fairseq import checkpoint_utils, file_utils, options, utils
from fairseq.data.fasta_dataset import FastaDataset
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.models.ema.ema import EMA
from fairseq.optim.adam import Adam
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.trainer import Trainer

from fairseq_entmax.checkpoints.loading import SafelyLoadingTorch
from fairseq_entmax.fairseq_patches import (
    adam,
    archives,
    atomic_copies,
    checked_trainer,
    error_sentences,
    exact_search,
    fasta,
    finished_training,
    literals,
    moving_averages,
    numpy_compat,
    optimizer_state,
    perplexity,
    rising,
    unread_weights,
)
from fairseq_entmax.fairseq_patches.exact_search import counts
from fairseq_entmax.fairseq_patches.replacing import replace, replace_in

# The functions of fairseq's commands that train, search or evaluate, and the changes to them
COMMANDS: tuple[tuple[Any, ...], ...] = (
    ("fairseq_cli.train", "train", finished_training.end_when_done),
    ("fairseq_cli.train", "should_stop_early", rising.wait_until_risen),
    # The only one of these commands that does not use call_main
    ("fairseq_cli.generate", "_main", error_sentences.end_processes, counts.reporting),
    ("fairseq_cli.interactive", "main", counts.reporting),
    ("fairseq_cli.eval_lm", "eval_lm", perplexity.evaluate_with_zeros),
)
# fairseq's modules that read a file which the settings in a checkpoint may name. With torch's own
# load they would run what is in it, or, from torch 2.6 on, refuse every checkpoint of fairseq's
LOADING = (
    "fairseq.checkpoint_utils",
    "fairseq.models.text_to_speech.vocoder",
    "fairseq.models.speech_to_text.xm_transformer",
    "fairseq.data.codedataset",
    "fairseq.modules.quantization.pq.em",
)


def install() -> None:
    """Make all changes to fairseq; a second call has no effect."""
    # For every command that has this package as its --user-dir
    replace(options, "parse_args_and_arch", error_sentences.check_options)
    replace(distributed_utils, "call_main", error_sentences.end_processes)
    for module in list(sys.modules.values()):
        change_command(module)
    literals.AFTER_IMPORT[:] = [change_command]  # of those that are imported later
    # For models of this package
    replace(Trainer, "__init__", checked_trainer.check_and_follow)
    restore = optimizer_state.restore_grown_model, moving_averages.restore
    replace(Trainer, "load_checkpoint", *restore, rising.load_without_best)
    without_kernel = error_sentences.stop_without_kernel
    step = rising.tell_updates, without_kernel, unread_weights.step_without
    replace(Trainer, "train_step", *step)
    replace(Trainer, "valid_step", without_kernel)
    replace(Trainer, "lr_step", rising.step_without_loss)
    replace(EMA, "__init__", moving_averages.average_no_whole_numbers)
    replace(checkpoint_utils, "save_checkpoint", rising.forget_best)
    # For models that give words probability zero
    aligned = SequenceGeneratorWithAlignment
    replace(SequenceGenerator, "generate", exact_search.search_with_zeros)
    replace(aligned, "generate", exact_search.align_with_zeros)
    replace(aligned, "_prepare_batch_for_alignment", exact_search.fill_up)
    # For every training, data and checkpoint
    replace(Adam, "step", adam.step_at_once)
    replace(utils, "multi_tensor_total_norm", adam.norm_at_once)
    utils.multi_tensor_l2norm_available = True
    replace(FastaDataset, "_build_index", fasta.refuse)
    replace(PathManager, "copy", atomic_copies.copy_whole)
    replace(checkpoint_utils, "load_checkpoint_to_cpu", error_sentences.refuse_checkpoint)
    replace(file_utils, "load_archive_file", archives.extract_within_folder)
    literals.restrict_eval()
    replace_in(numpy_compat.MODULES, "np", numpy_compat.NumPyWithCompat("numpy"))
    replace_in(LOADING, "torch", SafelyLoadingTorch("torch"))


def change_command(module: Any) -> None:
    """Change a module if it is a command of fairseq's, under its own name or as ``__main__``.

    Importing one here would set up logging for the whole process.
    """
    for command, name, *changes in COMMANDS:
        if command == getattr(getattr(module, "__spec__", None), "name", None):
            replace(module, name, *changes)
