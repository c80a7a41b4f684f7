"""The command ``fairseq-entmax``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import fairseq_entmax
from fairseq_entmax import warning_filters
from fairseq_entmax.analysis.arguments import COMMANDS, check_early, named_heads
from fairseq_entmax.files import check_target, refuse_inputs
from fairseq_entmax.progress import message_if_long

# Commands that parse their own arguments, as some take fairseq's options: the module of their
# function main, and their help
MODULES = {
    "analyze": (
        "analysis.analyze",
        "measure what every head of one or more models does on a data set",
    ),
    "ablate": (
        "analysis.ablation.command",
        "remove each head in turn, and score the rest of the model by loss, BLEU and ROUGE",
    ),
    "look": ("analysis.looks.command", "show the attention on your own sentences"),
    "report": (
        "analysis.report.command",
        "draw the results of analyze as one HTML page, and as figures for a paper",
    ),
    "oov": (
        "summaries.oov_command",
        "replace words outside the vocabulary by markers to copy, or restore them",
    ),
    "rouge": (
        "summaries.rouge_command",
        "score summaries by ROUGE-1, ROUGE-2 and ROUGE-L, with confidence intervals",
    ),
}
# The statuses that a shell reports for a command that SIGPIPE or SIGINT ended
PIPE_CLOSED, INTERRUPTED = 141, 130
USER_DIR = "a folder of Python that registers more mappings or models, as in fairseq's commands"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    It is 0, or 1 after an error, which is printed in one sentence, or 141 if the reader of the
    output, such as head, has ended, or 130 after Ctrl-C. Wrong usage exits with status 2, as
    argparse does.

    Args:
        arguments: the words after the command's name; None takes them from the shell.
    """
    warning_filters.hush()  # before torch and fairseq are imported and warn
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()  # here, where a closed pipe or a full disk is still handled
    except KeyboardInterrupt:
        print("fairseq-entmax: interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        # Otherwise Python's last flush, at exit, would report the same error again
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return PIPE_CLOSED
        print(f"fairseq-entmax: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


def _run(words: list[str]) -> int:
    command = words[0] if words else ""
    try:
        if command in MODULES:
            if command in COMMANDS:
                check_early(command, words[1:])
                importlib.import_module("fairseq_entmax.compat")  # its error if fairseq is missing
            importlib.import_module(f"fairseq_entmax.{MODULES[command][0]}").main(words[1:])
        else:
            parser = _parser()
            if not words:
                parser.error("give a command, such as analyze; see --help for the list")
            options = parser.parse_args(words)
            options.run(options)
    except BrokenPipeError:
        raise
    except (OSError, ValueError, RuntimeError, ModuleNotFoundError, MemoryError) as error:
        if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("fairseq_entmax"):
            raise  # not a package that the user could install
        text = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.filename and error.strerror:
            text = f"{error.filename}: {error.strerror}"
            text += ": give a file in it" if isinstance(error, IsADirectoryError) else ""
        print(f"fairseq-entmax {command}: {text}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairseq-entmax", description="Tools for fairseq-entmax models."
    )
    parser.add_argument("--version", action="version", version=fairseq_entmax.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    user_dir = commands.add_parser(
        "user-dir",
        help="print the path to give to --user-dir",
        description="Prints the folder of this package. A fairseq command that is given it "
        "knows the models, criterions and tasks of this package: fairseq-train DATA --user-dir "
        '"$(fairseq-entmax user-dir)" ...',
    )
    user_dir.set_defaults(run=lambda _: print(Path(fairseq_entmax.__file__).resolve().parent))

    alpha = commands.add_parser(
        "alpha",
        help="print the alpha of every head of a checkpoint, and other values that heads learn",
        description="Prints the alpha of every head of a checkpoint, with a row for each layer of "
        "each attention and the mean of learned alphas, and other values that heads learn, such as "
        "the strength of fusedmax. For a fixed mapping it prints the value that all heads share.",
    )
    alpha.add_argument("checkpoint", metavar="CHECKPOINT", help="a file that fairseq-train wrote")
    alpha.add_argument("--user-dir", metavar="DIR", help=USER_DIR)
    alpha.add_argument("--json", action="store_true", help="print JSON instead of a table")
    alpha.set_defaults(run=_print_values)

    for command, (_, text) in MODULES.items():
        commands.add_parser(command, help=text, add_help=False)

    tag = commands.add_parser(
        "tag",
        help="parse a text and write the parses as CoNLL-U, for analyze --conllu",
        description="Parses a text with a spaCy pipeline (needs the extra 'tagger').",
    )
    tag.add_argument("text", metavar="TEXT", help="a file with one sentence per line")
    tag.add_argument("--language", required=True, metavar="LANG", help="such as es; or a pipeline")
    tag.add_argument("--output", required=True, metavar="FILE", help="the CoNLL-U file to write")
    tag.add_argument("--overwrite", action="store_true", help="replace the output if it exists")
    tag.set_defaults(run=_tag)

    _add_prune(commands)
    return parser


def _add_prune(commands: Any) -> None:
    prune = commands.add_parser(
        "prune",
        help="write a smaller checkpoint, without closed heads or heads that you name",
        description="Removes closed heads from a checkpoint with head gates, and from any "
        "checkpoint the heads that you name or all but the best. The result has no gates.",
    )
    add = prune.add_argument
    add("checkpoint", metavar="CHECKPOINT", help="a file that fairseq-train wrote")
    add("--user-dir", metavar="DIR", help=USER_DIR)
    add("--output", metavar="FILE", help="the checkpoint to write")
    add(
        "--heads",
        metavar="HEADS",
        help="heads to remove besides the closed ones, as layer.head from 0, such as "
        "'encoder-self:0.3,0.5;cross:2.1'",
    )
    best = "keep the N best heads, or N per attention: encoder-self=10,cross=16"
    add("--keep", metavar="N", help=best)
    add(
        "--by",
        metavar="WHAT",
        help="how to rank heads: loss (its increase without the head), gates, random, or a "
        "measure, such as gradient, relevance or confidence",
    )
    add("--evidence", metavar="FILE", help="ablation.json or analysis.json of CHECKPOINT")
    add("--seed", metavar="N", type=int, default=1, help="seed of --by random (default: 1)")
    add("--overwrite", action="store_true", help="replace the output if it exists")
    add(
        "--print-config",
        action="store_true",
        help="print the options to train a model from scratch with the heads of CHECKPOINT (closed "
        "ones left out), or of the output",
    )
    add(
        "--undecided",
        action="store_true",
        help="take the current gates of a training with --target-heads that has not decided its heads",
    )
    prune.set_defaults(run=_prune)


def _print_values(options: argparse.Namespace) -> None:
    _import_user_dir(options.user_dir)
    from fairseq_entmax.analysis import value_table
    from fairseq_entmax.models.checkpoint_model import read_model

    model = read_model(options.checkpoint)
    rows = value_table.model_values(model)
    if options.json:
        print(json.dumps(value_table.as_json(rows), indent=2))
    else:
        print(value_table.as_table(rows, value_table.rank_correlations(model, rows)))


def _tag(options: argparse.Namespace) -> None:
    from fairseq_entmax.analysis.data.annotations import tagger

    number = tagger.tag(options.text, options.language, options.output, options.overwrite)
    print(f"{number} sentences: {options.output}")


def _import_user_dir(path: str | None) -> None:
    """Import a folder of Python that registers mappings or models, as fairseq's commands do."""
    if path is None:
        return
    if not path or not Path(path).is_dir():  # '' would mean the current folder
        raise FileNotFoundError(f"--user-dir: there is no folder '{path}'")
    importlib.import_module("fairseq_entmax.compat")  # its error if fairseq is missing
    from fairseq.utils import import_user_module

    try:
        import_user_module(argparse.Namespace(user_dir=path))
    except Exception as error:  # whatever its code raises
        raise ValueError(
            f"--user-dir {path} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def _prune(options: argparse.Namespace) -> None:
    chosen = options.heads, options.keep
    if options.output is None and (chosen != (None, None) or options.overwrite):
        raise ValueError("--heads, --keep and --overwrite need --output FILE, the file to write")
    if options.output is None and not options.print_config:
        raise ValueError("give --output FILE to write a smaller checkpoint, or --print-config")
    if (options.keep is None) != (options.by is None) or None not in chosen:
        raise ValueError("give --heads, or both --keep N and --by WHAT, to say which to remove")
    if options.by is None and options.evidence is not None:
        raise ValueError("--evidence needs --keep N and --by WHAT: add them, or leave it out")
    heads: Any = named_heads("--heads", options.heads) if options.heads is not None else ()
    if options.output is not None:
        target = check_target(options.output, "--output", options.overwrite)
        refuse_inputs([target], {"the evidence": options.evidence})
    _import_user_dir(options.user_dir)
    from fairseq_entmax import pruning
    from fairseq_entmax.models.config import as_arguments
    from fairseq_entmax.pruning import text

    if options.keep is not None:
        heads = pruning.Choice(options.keep, options.by, options.evidence, options.seed)
    if options.output is None:
        layers = pruning.checkpoint_layers(options.checkpoint, options.undecided)
        print(as_arguments(layers.options()))
        return
    source, output = Path(options.checkpoint), Path(options.output)
    bytes_before = source.stat().st_size  # the output may replace it
    with message_if_long(f"reading {source}, pruning and writing it"):
        report = pruning.prune_checkpoint(
            options.checkpoint,
            options.output,
            heads,
            overwrite=options.overwrite,
            undecided=options.undecided,
        )
    shown = sys.stderr if options.print_config else sys.stdout
    print(text.as_table(report, bytes_before, output.stat().st_size), file=shown)
    if options.print_config:
        print(as_arguments(report.options_after))
