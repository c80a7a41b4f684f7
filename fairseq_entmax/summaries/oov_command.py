"""The command ``fairseq-entmax oov``: words outside the vocabulary as markers, and back."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from fairseq_entmax.files import check_target, refuse_inputs, whole_file, whole_set
from fairseq_entmax.summaries import oov


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    for name, least in (("words", 1), ("markers", 0), ("cut_source", 1), ("cut_target", 1)):
        value = getattr(options, name, None)
        if value is not None and value < least:
            raise ValueError(f"--{name.replace('_', '-')} got {value}: give {least} or more")
    options.run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairseq-entmax oov",
        description="Replaces words outside the vocabulary by markers <unk-0>, <unk-1>, … that a "
        "model with --source-position-markers copies: makes the dictionary, marks texts before "
        "fairseq-preprocess, and restores the words after fairseq-generate. With subwords, none of this is needed.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    vocabulary = commands.add_parser(
        "vocabulary",
        help="write the most frequent words of texts, followed by markers, as a dictionary for "
        "--srcdict of fairseq-preprocess",
    )
    add = vocabulary.add_argument
    add("--text", nargs="+", required=True, metavar="FILE", help="one sentence per line, tokenised")
    add("--words", type=int, required=True, metavar="N", help="number of words to keep")
    add(
        "--markers",
        type=int,
        required=True,
        metavar="N",
        help="number of markers: how many different unknown words of a source can be copied; the same as "
        "--source-position-markers of the model; 0: none",
    )
    add("--output", required=True, metavar="FILE", help="output file")
    vocabulary.set_defaults(run=_vocabulary)

    mark = commands.add_parser(
        "mark",
        help="replace the unknown words of each source by markers, and also in its target",
    )
    add = mark.add_argument
    add("--source", required=True, metavar="FILE", help="one sentence per line")
    add("--target", metavar="FILE", help="the target of each source, in the same order")
    add("--output-source", required=True, metavar="FILE", help="output file")
    add("--output-target", metavar="FILE", help="output file for --target")
    add("--cut-target", type=int, metavar="N", help="keep the first N words of each target")
    mark.set_defaults(run=_mark)

    restoring = "replace the markers in the output of fairseq-generate by words"
    restore = commands.add_parser("restore", help=restoring)
    add = restore.add_argument
    add("generated", metavar="GENERATED", help="output of fairseq-generate")
    add("--source", required=True, metavar="FILE", help="the source before it was marked")
    add("--output", required=True, metavar="FILE", help="output file")
    restore.set_defaults(run=_restore)

    for add in (mark.add_argument, restore.add_argument):
        add("--vocab", required=True, metavar="FILE", help="the dictionary, with its markers")
        add(
            "--cut-source",
            type=int,
            metavar="N",
            help="keep the first N words of each source before marking it; give restore the same N",
        )
    for command in (vocabulary, mark, restore):
        command.add_argument("--overwrite", action="store_true", help="replace existing files")
    return parser


def _vocabulary(options: argparse.Namespace) -> None:
    output = check_target(options.output, "--output", options.overwrite)
    refuse_inputs([output], {f"the text {path}": path for path in options.text})
    counts: Counter[str] = Counter()
    for path in options.text:
        for words in oov.unmarked_words(path):
            counts.update(words)
    for word in oov.SPECIAL:
        counts.pop(word, None)
    if not counts:
        raise ValueError(f"--text {' '.join(options.text)} has no word: give other texts")
    with whole_file(output) as file:
        # Equally frequent words are in alphabetical order, as in fairseq's own dictionaries
        for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[
            : options.words
        ]:
            file.write(f"{word} {count}\n".encode())
        for number in range(options.markers):
            file.write(f"{oov.marker(number)} 0\n".encode())
    written = min(options.words, len(counts))
    covered = sum(count for _, count in counts.most_common(written)) / counts.total()
    print(
        f"{written} of {len(counts)} words ({covered:.2%} of the text) and {options.markers} "
        f"markers: {options.output}"
    )


def _mark(options: argparse.Namespace) -> None:
    if (options.target is None) != (options.output_target is None):
        raise ValueError("--target and --output-target go together: give both or none")
    if options.target is None and options.cut_target is not None:
        raise ValueError(
            f"--cut-target {options.cut_target} cuts no --target: give one, or leave it out"
        )
    sides = ["source"] if options.target is None else ["source", "target"]
    outputs = [
        check_target(getattr(options, f"output_{side}"), f"--output-{side}", options.overwrite)
        for side in sides
    ]
    inputs = {"the source": options.source, "the target": options.target}
    refuse_inputs(outputs, {**inputs, "the dictionary": options.vocab})
    refuse_inputs(outputs[1:], {"the output of --output-source": options.output_source})
    vocabulary = oov.read_vocabulary(options.vocab)
    paths = [getattr(options, side) for side in sides]
    with whole_set(outputs) as files:
        cuts = [options.cut_source, options.cut_target][: len(sides)]
        counts = oov.mark(vocabulary, paths, files, cuts)
    for side, count in zip(sides, counts, strict=True):
        share = count["unknown"] / max(count["words"], 1)
        print(
            f"{side}: {count['words']} words, {count['unknown']} ({share:.2%}) not in the "
            f"vocabulary, {count['marked']} of these with a marker"
        )


def _restore(options: argparse.Namespace) -> None:
    output = check_target(options.output, "--output", options.overwrite)
    inputs = {"the generated text": options.generated, "the source": options.source}
    refuse_inputs([output], {**inputs, "the dictionary": options.vocab})
    vocabulary = oov.read_vocabulary(options.vocab)
    with whole_file(output) as file:
        counts = oov.restore(
            vocabulary, options.generated, options.source, options.cut_source, file
        )
    program = "fairseq-entmax oov restore:"
    if lost := counts["lost"]:
        print(
            f"{program} {lost} of {lost + counts['restored']} markers stand for no word of their "
            f"source, and were written as {oov.UNKNOWN}",
            file=sys.stderr,
        )
    if not counts["sources"]:
        print(
            f"{program} {options.generated} has no lines S-…, so it could not be checked that "
            f"--source {options.source} is its text",
            file=sys.stderr,
        )
    print(f"{counts['restored']} words restored: {options.output}")
