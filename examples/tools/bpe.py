"""Subwords for the dataset recipes: train a sentencepiece BPE model, and apply it to text.

bpe.py learn bpe.model 2000 train.es train.en
bpe.py encode bpe.model < train.es > train.bpe.es
"""

from __future__ import annotations

import io
import sys
from itertools import chain
from pathlib import Path

import sentencepiece
from messages import one_sentence
from translations import lines_of

MAX_SENTENCE_BYTES = 1 << 20  # sentencepiece skips longer lines; its own default is 4,192


def learn(texts: list[Path], vocab: int) -> bytes:
    """A BPE model that covers all characters. It names no file: equal texts give equal bytes."""
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
            f"{vocab} subwords cannot be learned from the training text: {error}"
        ) from error
    return model.getvalue()


def main(command: str, model: str, *words: str) -> None:
    if command == "learn":
        vocab, *texts = words
        with one_sentence():
            Path(model).write_bytes(learn(list(map(Path, texts)), int(vocab)))
        return
    for stream in (sys.stdin, sys.stdout):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="utf-8", newline="\n")
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    for line in sys.stdin:
        print(*processor.encode(line.rstrip("\n"), out_type=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
