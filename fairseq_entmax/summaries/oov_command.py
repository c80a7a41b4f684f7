"""The command ``fairseq-entmax oov``: words outside the vocabulary as markers, and back."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_entmax.files import check_target, refuse_inputs, whole_file, whole_set
from fairseq_entmax.summaries import oov
from fairseq_entmax.summaries.restore import Restorer

GENERATE, TEXT = "generate", "text"


def main(arguments: Sequence[str]) -> None:
    """Run the command.

    Args:
        arguments: what stands behind ``fairseq-entmax oov``.

    Raises:
        ValueError, OSError: what is wrong, in one sentence; nothing is written.
        SystemExit: of argparse.
    """
    options = _parser().parse_args(arguments)
    options.run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairseq-entmax oov",
        description="Words outside the vocabulary as markers <unk-0>, <unk-1>, … that a model "
        "with --source-position-markers copies: makes the dictionary, marks texts before "
        "fairseq-preprocess, and restores the words after fairseq-generate. With subwords, none "
        "of this is needed.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_vocabulary(commands.add_parser("vocabulary", help="count words, and write a dictionary"))
    _add_mark(commands.add_parser("mark", help="put markers in place of unknown words"))
    _add_restore(commands.add_parser("restore", help="put words in place of generated markers"))
    return parser


def _add_vocabulary(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes the most frequent words of texts, and markers behind them, as a dictionary for "
        "--srcdict and --joined-dictionary of fairseq-preprocess."
    )
    parser.add_argument(
        "--text",
        nargs="+",
        required=True,
        metavar="FILE",
        help="texts with a sentence a line, words apart by spaces; often source and target of "
        "the training data",
    )
    parser.add_argument("--words", type=int, required=True, metavar="N", help="words to keep")
    parser.add_argument(
        "--markers",
        type=int,
        required=True,
        metavar="N",
        help="markers to add: how many different unknown words of a source can be copied; as "
        "--source-position-markers of the model. 0 makes a dictionary without",
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="the dictionary to write")
    parser.add_argument("--overwrite", action="store_true", help="replace it if it exists")
    parser.set_defaults(run=_vocabulary)


def _add_mark(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Numbers the distinct unknown words of each source in order of first occurrence, and "
        "puts markers with these numbers in their place, in the source and in its target."
    )
    parser.add_argument("--source", required=True, metavar="FILE", help="a sentence a line")
    parser.add_argument("--target", metavar="FILE", help="the target of each, in the same order")
    _add_vocab(parser)
    parser.add_argument("--output-source", required=True, metavar="FILE", help="to write")
    parser.add_argument("--output-target", metavar="FILE", help="to write, with --target")
    _add_cut_source(parser, "cut each source after so many words before it is marked")
    parser.add_argument(
        "--cut-target", type=int, metavar="N", help="cut each target after so many words"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what exists")
    parser.set_defaults(run=_mark)


def _add_restore(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Puts the words of each source in place of the markers that were generated for it. The "
        "sentences are joined by their numbers, as fairseq-generate prints them in another order."
    )
    parser.add_argument("generated", metavar="GENERATED", help="what fairseq-generate printed")
    parser.add_argument(
        "--source", required=True, metavar="FILE", help="the source before it was marked"
    )
    _add_vocab(parser)
    parser.add_argument("--output", required=True, metavar="FILE", help="the file to write")
    parser.add_argument(
        "--as",
        dest="form",
        choices=(GENERATE, TEXT),
        default=GENERATE,
        help="generate: all lines of GENERATED (default); text: the best hypothesis of each "
        "sentence, a line each, in the order of the source",
    )
    _add_cut_source(parser, "as in marking; a source that fairseq cut needs nothing")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it exists")
    parser.set_defaults(run=_restore)


def _add_vocab(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vocab", required=True, metavar="FILE", help="the dictionary, with its markers"
    )


def _add_cut_source(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--cut-source", type=int, metavar="N", help=text)


def _vocabulary(options: argparse.Namespace) -> None:
    _check_least("--words", options.words, 1)
    _check_least("--markers", options.markers, 0)
    output = check_target(options.output, "--output", options.overwrite)
    refuse_inputs([output], {f"the text {path}": path for path in options.text})
    counts = oov.count_words(options.text)
    if not counts:
        raise ValueError(f"--text {' '.join(options.text)} has no word: give other texts")
    with whole_file(output) as file:
        for line in oov.vocabulary_lines(counts, options.words, options.markers):
            file.write(line.encode())
    kept = min(options.words, len(counts))
    covered = sum(count for _, count in counts.most_common(kept)) / counts.total()
    print(
        f"{kept} of {len(counts)} words ({covered:.2%} of the text) and {options.markers} "
        f"markers: {options.output}"
    )


def _mark(options: argparse.Namespace) -> None:
    _check_least("--cut-source", options.cut_source, 1)
    _check_least("--cut-target", options.cut_target, 1)
    if (options.target is None) != (options.output_target is None):
        raise ValueError("--target and --output-target go together: give both or none")
    outputs = [check_target(options.output_source, "--output-source", options.overwrite)]
    if options.target is not None:
        outputs.append(check_target(options.output_target, "--output-target", options.overwrite))
    elif options.cut_target is not None:
        raise ValueError(f"--cut-target {options.cut_target} needs --target FILE")
    if len(set(outputs)) < len(outputs):
        raise ValueError(
            f"--output-source and --output-target are both {options.output_source}: give two names"
        )
    inputs = {"the source": options.source, "the target": options.target}
    refuse_inputs(outputs, {**inputs, "the dictionary": options.vocab})
    vocabulary = oov.read_vocabulary(options.vocab)
    with whole_set(outputs) as files:
        counts = oov.mark(
            vocabulary,
            options.source,
            options.target,
            files,
            options.cut_source,
            options.cut_target,
        )
    for side in ("source", "target")[: len(outputs)]:
        words, unknown, marked = (
            getattr(counts, f"{side}_{name}") for name in ("words", "unknown", "marked")
        )
        share = unknown / words if words else 0
        print(
            f"{side}: {counts.sentences} sentences, {words} words, {unknown} ({share:.2%}) not in "
            f"the vocabulary, {marked} of these with a marker"
        )


def _restore(options: argparse.Namespace) -> None:
    _check_least("--cut-source", options.cut_source, 1)
    output = check_target(options.output, "--output", options.overwrite)
    inputs = {"the generated text": options.generated, "the source": options.source}
    refuse_inputs([output], {**inputs, "the dictionary": options.vocab})
    vocabulary = oov.read_vocabulary(options.vocab)
    restorer = Restorer(vocabulary, options.generated, options.source, options.cut_source)
    with whole_file(Path(output)) as file:
        write = restorer.as_text if options.form == TEXT else restorer.as_generated
        counts = write(file)
    if counts.lost:
        print(
            f"fairseq-entmax oov restore: {counts.lost} of {counts.markers} markers, in "
            f"{counts.lost_sentences} sentences, stand for no word of their source, and are "
            f"written as {oov.UNKNOWN}",
            file=sys.stderr,
        )
    if not restorer.is_compared:
        print(
            f"fairseq-entmax oov restore: {options.generated} has no lines S-…, so whether --source "
            f"{options.source} is its text could not be compared",
            file=sys.stderr,
        )
    restored = counts.markers - counts.lost
    print(f"{restored} words restored in {counts.sentences} sentences: {options.output}")


def _check_least(option: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(f"{option} got {value}: give {least} or more")
