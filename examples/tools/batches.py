"""Divide the batch of an update among the processes of a training.

batches.py data-bin es en --batch-tokens 8192 --most-tokens 4096 --processes 2 --nodes 1
batches.py data-bin --block-tokens 512 --batch-tokens 8192 --most-tokens 4096

Prints the number of all processes, --update-freq, --max-tokens and --max-tokens-valid for
fairseq-train, and about how many updates an epoch has, whatever the number of processes. A second
line says how many training pairs are left out, if any are. A single text, of a language model, is
cut into blocks.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy
from messages import UsageError, one_sentence

MAGIC = b"MMIDIDX\x00\x00"  # of fairseq's default format; version, type and count follow
HEADER = struct.Struct("<9sQBQ")
# Per hundred training pairs. fairseq silently leaves out those that are too long for a process;
# if more were left out, the training would differ from one on fewer processes.
MOST_LEFT_OUT = 1


def sizes(path: Path) -> numpy.ndarray:
    """The number of tokens in each sentence, shape (sentences,), from the index of a data set."""
    with path.open("rb") as file:
        header = file.read(HEADER.size)
        if len(header) < HEADER.size or not header.startswith(MAGIC):
            raise ValueError(f"{path} is not in fairseq's mmap format: run prepare.sh again")
        return numpy.fromfile(file, dtype="<i4", count=HEADER.unpack(header)[3])


def longest_sides(folder: Path, split: str, languages: Sequence[str]) -> numpy.ndarray:
    """The number of tokens in the longer side of each pair, or in all texts to classify.

    Pairs are in the order in which fairseq makes batches, by the source, then the target.
    """
    inputs = sorted(folder.glob(f"input?/{split}.idx"))
    if inputs:
        # The task puts a token before each: <s>, or the separator
        return numpy.sum([sizes(path) + 1 for path in inputs], axis=0)
    pair = "-".join(languages)
    source, target = (sizes(folder / f"{split}.{pair}.{x}.idx") for x in languages)
    return numpy.maximum(source, target)[numpy.lexsort((target, source))]


def block_lengths(folder: Path, split: str, block_tokens: int) -> numpy.ndarray:
    """The number of tokens in each block of a text, shape (blocks,): all but the last are full."""
    full, rest = divmod(int(sizes(folder / f"{split}.idx").sum()), block_tokens)
    return numpy.array([block_tokens] * full + [rest] * (rest > 0))


def share(batch_tokens: int, most_tokens: int, world: int) -> tuple[int, int]:
    """How often each of `world` processes takes tokens for an update, and how many at a time."""
    update_freq = -(-batch_tokens // (world * most_tokens))
    max_tokens = batch_tokens // (world * update_freq)
    if max_tokens == 0:
        raise UsageError(
            f"option --processes makes {world} processes: a batch of {batch_tokens} tokens is "
            "too small for them"
        )
    return update_freq, max_tokens


def updates(batch_tokens: int, lengths: numpy.ndarray) -> int:
    """How many batches pairs of these lengths fill, in this order."""
    batches, taken, longest = 1, 0, 0
    for length in lengths.tolist():
        taken, longest = taken + 1, max(longest, length)
        if taken * longest > batch_tokens:
            batches, taken, longest = batches + 1, 1, length
    return batches


def left_out(
    world: int, update_freq: int, max_tokens: int, lengths: numpy.ndarray, what: str
) -> str | None:
    """Say how many training pairs are too long for a process; refuse more than a few."""
    too_long = int((lengths > max_tokens).sum())
    found = (
        f"{world} process(es) take {max_tokens} tokens at a time, and {too_long} of "
        f"{len(lengths)} {what} are longer"
    )
    if 100 * too_long > MOST_LEFT_OUT * len(lengths):
        remedies = ["fewer processes"] * (world > 1) + ["a larger --most-tokens"] * (
            update_freq > 1
        )
        raise UsageError(f"{found}: use {' or '.join(remedies) or 'larger batches'}")
    return f"{found}: they are left out" if too_long else None


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of binarised data")
    parser.add_argument("languages", nargs="*", help="both languages; none for a single text")
    parser.add_argument("--block-tokens", type=int, help="tokens in a block of a single text")
    parser.add_argument("--batch-tokens", type=int, help="tokens in a batch")
    parser.add_argument("--most-tokens", type=int, help="most tokens per process")
    parser.add_argument("--processes", type=int, default=1, help="processes on each machine")
    parser.add_argument("--nodes", type=int, default=1, help="number of machines")
    options = parser.parse_args(arguments)
    with one_sentence():
        world, most = options.processes * options.nodes, options.most_tokens
        update_freq, max_tokens = share(options.batch_tokens, most, world)
        what, lengths = "training pairs", partial(longest_sides, languages=options.languages)
        if options.block_tokens is not None:
            what = "blocks of the training text"
            lengths = partial(block_lengths, block_tokens=options.block_tokens)
        train, valid = (lengths(options.data, split) for split in ("train", "valid"))
        note = left_out(world, update_freq, max_tokens, train, what)
        # fairseq stops at a validation sentence longer than --max-tokens-valid
        valid_tokens = max(int(valid.max()), most)
        of_epoch = updates(options.batch_tokens, train[train <= max_tokens])
        print(world, update_freq, max_tokens, valid_tokens, of_epoch)
        if note is not None:
            print(note)


if __name__ == "__main__":
    main()
