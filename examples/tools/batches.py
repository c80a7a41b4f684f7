"""The batch of an update, shared by the processes of a training.

batches.py data-bin es en --batch-tokens 8192 --most-tokens 4096 --processes 2 --nodes 1
batches.py data-bin --block-tokens 512 --batch-tokens 8192 --most-tokens 4096
batches.py data-bin es en --longest

Prints the number of all processes, --update-freq, --max-tokens and --max-tokens-valid for
fairseq-train, and on a second line which training pairs are left out, where some are. One text, of
a language model, is cut into blocks. With --longest, prints the tokens of the longest sentence of all
splits instead.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
from messages import UsageError, one_sentence

MAGIC = b"MMIDIDX\x00\x00"  # of fairseq's default format; then version, type, and count
HEADER = struct.Struct("<9sQBQ")
INPUTS = "input?"  # folders of a classifier's texts: input0, and input1 where there are pairs
# Of a hundred training pairs; fairseq leaves out what is too long for a process without a word,
# and with more of it gone, the training would be another one than on fewer processes
MOST_LEFT_OUT = 1


def sizes(path: Path) -> numpy.ndarray:
    """The tokens of each sentence, shape (sentences,), from the index of a data set.

    Raises:
        ValueError: it is in another of fairseq's formats, or cut short.
    """
    with path.open("rb") as file:
        header = file.read(HEADER.size)
        if len(header) < HEADER.size:
            raise ValueError(f"{path} is cut short: run prepare.sh again")
        magic, _, _, count = HEADER.unpack(header)
        if magic != MAGIC:
            raise ValueError(f"{path} is not in fairseq's format mmap: run prepare.sh again")
        return numpy.fromfile(file, dtype="<i4", count=count)


def longest_sides(folder: Path, split: str, languages: Sequence[str]) -> numpy.ndarray:
    """The tokens of the longer side of each pair, shape (pairs,).

    Where the folder is of the task sentence_prediction, which joins the texts of a pair, those of
    all its texts together.
    """
    inputs = sorted(folder.glob(f"{INPUTS}/{split}.idx"))
    if inputs:
        return numpy.sum([sizes(path) for path in inputs], axis=0)
    pair = "-".join(languages)
    return numpy.maximum(*(sizes(folder / f"{split}.{pair}.{x}.idx") for x in languages))


def longest(folder: Path, languages: Sequence[str]) -> int:
    """The tokens of the longest sentence in either language, over all splits."""
    pair = "-".join(languages)
    paths = [path for x in languages for path in sorted(folder.glob(f"*.{pair}.{x}.idx"))]
    return max(int(sizes(path).max()) for path in paths)


def block_lengths(folder: Path, split: str, block_tokens: int) -> numpy.ndarray:
    """The tokens of each block of a text, shape (blocks,): all are full but the last."""
    tokens = int(sizes(folder / f"{split}.idx").sum())
    full, rest = divmod(tokens, block_tokens)
    return numpy.array([block_tokens] * full + [rest] * (rest > 0))


@dataclass(frozen=True)
class Share:
    """What each process takes of a batch.

    Attributes:
        world: processes on all machines, 1 or more.
        update_freq: times that each takes tokens for an update.
        max_tokens: tokens that each takes at a time.
    """

    world: int
    update_freq: int
    max_tokens: int


def share(batch_tokens: int, most_tokens: int, processes: int, nodes: int = 1) -> Share:
    """Share a batch so that no process takes more than it can at a time, in as few turns.

    Args:
        batch_tokens: tokens in the batch of an update, over all processes.
        most_tokens: tokens at most that a process takes at a time.
        processes: on each machine.
        nodes: machines.

    Raises:
        UsageError: the batch has not one token for each process.
    """
    world = processes * nodes
    update_freq = -(-batch_tokens // (world * most_tokens))
    max_tokens = batch_tokens // (world * update_freq)
    if max_tokens == 0:
        raise UsageError(
            f"option --processes got '{processes}': a batch of {batch_tokens} tokens has not one "
            "for each process"
        )
    return Share(world, update_freq, max_tokens)


def left_out(
    part: Share, lengths: numpy.ndarray, most_tokens: int, what: str = "training pairs"
) -> str | None:
    """Say which training pairs are longer than a process takes at a time; None: not one is.

    Args:
        lengths: tokens of the longer side of each training pair, or of each block of a text.
        most_tokens: what --most-tokens is, for the message.
        what: they are, for the message.

    Raises:
        UsageError: more than `MOST_LEFT_OUT` of a hundred are longer.
    """
    too_long = int((lengths > part.max_tokens).sum())
    if too_long == 0:
        return None
    found = (
        f"{part.world} process(es) take {part.max_tokens} tokens at a time, and {too_long} of "
        f"{len(lengths)} {what} are longer"
    )
    if 100 * too_long > MOST_LEFT_OUT * len(lengths):
        raise UsageError(
            f"{found}: use fewer processes, or a larger --most-tokens than {most_tokens} where "
            "that is less than their share of the batch"
        )
    return f"{found}: they are left out"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of binarised data")
    parser.add_argument("languages", nargs="*", help="two; none where there is one text")
    parser.add_argument("--block-tokens", type=int, help="of the blocks of one text")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--batch-tokens", type=int, help="of all processes")
    what.add_argument("--longest", action="store_true", help="print how long a sentence is at most")
    parser.add_argument("--most-tokens", type=int, help="of one, at a time")
    parser.add_argument("--processes", type=int, default=1, help="on each machine")
    parser.add_argument("--nodes", type=int, default=1, help="machines")
    options = parser.parse_args(arguments)
    if options.batch_tokens and options.most_tokens is None:
        parser.error("--batch-tokens needs --most-tokens")
    with one_sentence():
        if options.longest:
            print(longest(options.data, options.languages))
            return
        processes, nodes = options.processes, options.nodes
        part = share(options.batch_tokens, options.most_tokens, processes, nodes)
        if options.block_tokens is None:
            train, valid = (
                longest_sides(options.data, split, options.languages)
                for split in ("train", "valid")
            )
            note = left_out(part, train, options.most_tokens)
        else:
            train, valid = (
                block_lengths(options.data, split, options.block_tokens)
                for split in ("train", "valid")
            )
            note = left_out(part, train, options.most_tokens, "blocks of the training text")
        # fairseq stops at a validation sentence that is longer than this
        longest_valid = int(valid.max())
        max_tokens_valid = max(longest_valid, options.most_tokens)
        print(part.world, part.update_freq, part.max_tokens, max_tokens_valid)
        if note is not None:
            print(note)


if __name__ == "__main__":
    main()
