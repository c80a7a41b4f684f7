"""Subwords for the dataset recipes: learn a sentencepiece BPE, and cut text with it.

bpe.py learn --vocab 2000 --model bpe.model train.es train.en
bpe.py encode --model bpe.model < train.es > train.bpe.es
bpe.py apply --codes codes --workers 8 < train.es > train.bpe.es      # merges of subword-nmt
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Iterator
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import sentencepiece
from messages import one_sentence
from translations import lines_of
from words import pooled

MAX_SENTENCE_BYTES = 1 << 20  # sentencepiece skips longer lines; its own default is 4,192


def learn(texts: list[Path], vocab: int) -> bytes:
    """A BPE model of every character, without a file's name: the same text gives the same bytes."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chain.from_iterable(lines_of(path) for path in texts),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab,
            character_coverage=1.0,
            max_sentence_length=MAX_SENTENCE_BYTES,
            num_threads=1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise ValueError(
            f"{vocab} subwords cannot be learned of the training text: {error}"
        ) from error
    return model.getvalue()


def encode(model: Path, lines: Iterator[str]) -> Iterator[str]:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for line in lines:
        yield " ".join(processor.encode(line, out_type=str))


@cache
def _merges(codes: Path, keep: tuple[str, ...]) -> Any:
    from subword_nmt.apply_bpe import BPE

    with codes.open(encoding="utf-8") as file:
        return BPE(file, glossaries=[re.escape(word) for word in keep])


def _cut(line: str, codes: Path, keep: tuple[str, ...]) -> str:
    cut: str = _merges(codes, keep).process_line(line)
    return cut


def apply(codes: Path, lines: Iterator[str], workers: int, keep: tuple[str, ...]) -> Iterator[str]:
    """Yield each line cut by merges; words of `keep` whole."""
    return pooled(partial(_cut, codes=codes, keep=keep), lines, workers)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    learning = commands.add_parser("learn", help="learn a model from texts")
    learning.add_argument("--vocab", type=int, required=True, help="number of pieces")
    learning.add_argument("--model", type=Path, required=True, help="file to write")
    learning.add_argument("texts", type=Path, nargs="+", help="UTF-8 texts, a sentence a line")
    encoding = commands.add_parser("encode", help="cut standard input into pieces")
    encoding.add_argument("--model", type=Path, required=True, help="model file")
    applying = commands.add_parser("apply", help="cut standard input by merges of subword-nmt")
    applying.add_argument("--codes", type=Path, required=True, help="file of merges")
    applying.add_argument("--workers", type=int, default=1)
    applying.add_argument("--keep", nargs="+", default=[], help="words that stay whole")
    options = parser.parse_args(arguments)

    if options.command == "learn":
        with one_sentence():
            options.model.write_bytes(learn(options.texts, options.vocab))
        return
    for stream in (sys.stdin, sys.stdout):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="utf-8", newline="\n")
    lines = (line.rstrip("\n") for line in sys.stdin)
    if options.command == "apply":
        cut = apply(options.codes, lines, options.workers, tuple(options.keep))
    else:
        cut = encode(options.model, lines)
    for pieces in cut:
        print(pieces)


if __name__ == "__main__":
    main()
