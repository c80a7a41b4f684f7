"""Set up tasks and data for analysis from fairseq's options."""

from __future__ import annotations

import argparse
import logging
import os
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

import numpy
import torch
from fairseq import options, utils
from fairseq.data import data_utils
from fairseq.dataclass.configs import CommonEvalConfig, GenerationConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from fairseq_entmax.analysis.data import data_types
from fairseq_entmax.error_messages import reason
from fairseq_entmax.tasks.summarization import SummarizationConfig

logger = logging.getLogger(__name__)

SUBSET = "valid"
TASK = "translation"
MAX_TOKENS = 4000


def data_parser(description: str) -> argparse.ArgumentParser:
    """Make a parser of fairseq's options for data, languages, batches, devices, models, search."""
    parser = options.get_parser(description, default_task=TASK)
    parser.description = description
    options.add_dataset_args(parser)
    options.add_generation_args(parser)
    parser.set_defaults(gen_subset=SUBSET, required_batch_size_multiple=1)
    return parser


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> Namespace:
    """Parse a command's and its task's arguments; the checkpoint supplies options not given."""
    args: Namespace = options.parse_args_and_arch(parser, list(arguments))
    if not args.path:
        raise ValueError("give --path CHECKPOINT, the model to analyse")
    data_type = _type_of_data(args)
    refuse(args, ("num_shards", "model_overrides"), "leave it out")
    if args.max_tokens is None and args.batch_size is None:
        args.max_tokens = MAX_TOKENS
    words = (word.partition("=")[0] for word in arguments if word.startswith("--"))
    data_type.complete(args, {word[2:].replace("-", "_") for word in words})
    return args


def refuse(args: Namespace, names: Iterable[str], remedy: str) -> None:
    """Refuse options of fairseq that would be ignored."""
    summaries = vars(SummarizationConfig())
    defaults = {**summaries, **vars(GenerationConfig()), **vars(CommonEvalConfig())}
    defaults["num_shards"] = 1
    for name in names:
        value = getattr(args, name, defaults[name])
        if value != defaults[name]:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} got {value!r}, which has no effect here: {remedy}")


def _type_of_data(args: Namespace) -> data_types.DataType:
    """Return the type of data for ``--task``; refuse a folder without such data."""
    if not args.data or not os.path.isdir(args.data):
        several = " (several, separated by colons, are for training only)" * (":" in args.data)
        raise ValueError(
            f"there is no folder {args.data!r} with data that fairseq prepared{several}"
        )
    data_type = data_types.type_named(args.task)
    data_types.check_folder(args.data, data_type, args.task)
    return data_type


def configuration(args: Namespace) -> Any:
    """Convert parsed arguments to fairseq's nested configuration."""
    if args.tokenizer == "moses" and None in (args.source_lang, args.target_lang):
        # fairseq's task would find them later, but its tokenizer takes no None
        args.source_lang, args.target_lang = data_utils.infer_language_pair(args.data)
    try:
        return convert_namespace_to_omegaconf(args)
    except (HydraException, OmegaConfBaseException, ValueError, SyntaxError) as error:
        raise ValueError(
            f"the options of --task {args.task}, with those that {args.path} was trained with, "
            f"are not valid in fairseq: {reason(error)}"
        ) from error


def setup_task(args: Namespace) -> Any:
    """Set up fairseq's task, with its dictionaries, from parsed arguments."""
    data_type = data_types.type_named(args.task)
    config = configuration(args).task
    try:
        return data_type.setup_task(args, config)
    except Exception as error:  # fairseq raises plain Exception, too
        languages = ", or give --source-lang and --target-lang as in its file names"
        raise ValueError(
            f"the dictionaries in {args.data} cannot be read ({reason(error)}): run fairseq-preprocess "
            f"again{languages * data_type.has_search}"
        ) from error


def load_task(
    data: str,
    source_lang: str | None = None,
    target_lang: str | None = None,
    task: str = "translation",
    checkpoint: str | None = None,
) -> Any:
    """Set up fairseq's task for a data folder, for notebooks.

    Args:
        data: the folder that ``fairseq-preprocess`` wrote.
        source_lang, target_lang: None finds them in the file names.
        task: fairseq's task, such as ``language_modeling`` for a text alone.
        checkpoint: a model whose options decide how the data is read, such as a sample's tokens.

    Raises:
        ValueError: the folder does not exist, or has data for another task.
        FileNotFoundError, UnsafeCheckpointError: the checkpoint cannot be read.
    """
    languages = {"--source-lang": source_lang, "--target-lang": target_lang}
    arguments = [text for name, one in languages.items() if one for text in (name, one)]
    args = options.parse_args_and_arch(data_parser(""), [data, f"--task={task}", *arguments])
    data_type = _type_of_data(args)
    if checkpoint is not None:
        args.path = checkpoint
        data_type.complete(args, set())
    return setup_task(args)


def load_dataset(task: Any, subset: str) -> Any:
    """Load a data set from the task's folder."""
    data_type = data_types.type_of_task(task)
    try:
        task.load_dataset(subset)
    except Exception as error:  # whatever fairseq raises for a damaged or missing file
        raise ValueError(
            f"--gen-subset got {subset!r}, which cannot be read from "
            f"{data_type.options_of(task).data}: {reason(error)}"
        ) from error
    dataset = task.dataset(subset)
    data_type.check_dataset(task, dataset, subset)
    return dataset


def batches(args: Namespace, task: Any, dataset: Any, models: Sequence[Any]) -> Any:
    """Return an iterator over a data set in batches, by fairseq's options for batches."""
    try:
        iterator = task.get_batch_iterator(
            dataset=dataset,
            max_tokens=args.max_tokens,
            max_sentences=args.batch_size,
            max_positions=_max_positions(task, models),
            ignore_invalid_inputs=args.skip_invalid_size_inputs_valid_test,
            required_batch_size_multiple=args.required_batch_size_multiple,
            seed=args.seed,
            num_workers=args.num_workers,
            data_buffer_size=args.data_buffer_size,
        )
        return iterator.next_epoch_itr(shuffle=False)
    except AssertionError as error:  # fairseq raises it for a sentence of more tokens
        raise ValueError(
            f"--max-tokens got {args.max_tokens}, which a sentence exceeds: give more ({error})"
        ) from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        # fairseq raises this for a sentence that is too long, and says what to do
        raise ValueError(f"--gen-subset {args.gen_subset}: {error}") from error


def check_lengths(task: Any, dataset: Any, models: Sequence[Any], sentences: Sequence[int]) -> None:
    """Refuse sentences of ``--sentences`` that are longer than a model takes."""
    numbers = numpy.array(sentences, dtype=numpy.int64)
    _, too_long = dataset.filter_indices_by_size(numbers, _max_positions(task, models))
    if len(too_long):
        raise ValueError(
            f"--sentences got {too_long[0]}, which is too long for the model: leave it out"
        )


def _max_positions(task: Any, models: Sequence[Any]) -> Any:
    positions = (model.max_positions() for model in models)
    return utils.resolve_max_positions(task.max_positions(), *positions)


def shows_progress(args: Namespace) -> bool:
    """Whether fairseq's options allow a command to show its progress."""
    return not (args.no_progress_bar or args.log_format == "none")


def log_to_stderr() -> None:
    """Log warnings, or the level in the environment's ``LOGLEVEL``, to stderr."""
    logging.basicConfig()
    # Importing fairseq has set a lower level
    logging.getLogger().setLevel(os.environ.get("LOGLEVEL", "WARNING").upper())


def device_of(args: Namespace) -> torch.device:
    """Return the GPU if there is one and ``--cpu`` is not given; else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
