"""Subwords for the dataset recipes: learn a sentencepiece BPE, and cut text with it.

bpe.py learn --vocab 2000 --model bpe.model train.es train.en
bpe.py encode --model bpe.model < train.es > train.bpe.es
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import sentencepiece

MAX_SENTENCE_BYTES = 1 << 20  # sentencepiece skips longer lines; its own default is 4,192


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text without their ends, splitting at "\\n" alone."""
    with path.open(encoding="utf-8", newline="\n") as text:
        for line in text:
            yield line.rstrip("\n")


def learn(texts: list[Path], vocab: int) -> bytes:
    """Return a BPE model of `vocab` pieces that covers every character of `texts`.

    The text goes in through an iterator and the model comes back as bytes, so no file
    name gets into the model: the same text always gives the same bytes.

    Raises:
        ValueError: the text is too small (or `vocab` too small for its characters).
    """
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
        raise ValueError(f"--vocab {vocab} does not fit the text: {error}") from error
    return model.getvalue()


def encode(model: Path, lines: Iterator[str]) -> Iterator[str]:
    """Yield each line as its pieces with spaces between them."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for line in lines:
        yield " ".join(processor.encode(line, out_type=str))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    learning = commands.add_parser("learn", help="learn a model from texts")
    learning.add_argument("--vocab", type=int, required=True, help="number of pieces")
    learning.add_argument("--model", type=Path, required=True, help="file to write")
    learning.add_argument("texts", type=Path, nargs="+", help="UTF-8 texts, a sentence a line")
    encoding = commands.add_parser("encode", help="cut standard input into pieces")
    encoding.add_argument("--model", type=Path, required=True, help="model file")
    options = parser.parse_args(arguments)

    if options.command == "learn":
        try:
            options.model.write_bytes(learn(options.texts, options.vocab))
        except (OSError, ValueError) as error:
            parser.error(str(error))
        return
    sys.stdin.reconfigure(encoding="utf-8", newline="\n")
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    for pieces in encode(options.model, (line.rstrip("\n") for line in sys.stdin)):
        print(pieces)


if __name__ == "__main__":
    main()
