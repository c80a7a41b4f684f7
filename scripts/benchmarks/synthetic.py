"""Binarised data of random words, for models whose speed is measured at lengths of choice."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from fairseq.data import Dictionary, indexed_dataset

# The size of the dictionary of transformer_iwslt_de_en's data is about that
WORDS = 8000


def lengths_of(text: str) -> tuple[int, int]:
    """Words of a source and of a target, from such as ``400x100``.

    Raises:
        ValueError: the text is not that.
    """
    if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", text):
        raise ValueError(f"got {text!r}: give random:SOURCExTARGET, such as random:400x100")
    source, target = map(int, text.split("x"))
    return source, target


def write(folder: str | Path, sentences: int, lengths: tuple[int, int], words: int = WORDS) -> None:
    """Make a training set from ``a`` to ``b``, as ``fairseq-preprocess`` does.

    Args:
        folder: it is there.
        sentences: how many pairs.
        lengths: of a source and of a target, with their ends.
        words: of the dictionary.
    """
    dictionary = Dictionary()
    for number in range(words - dictionary.nspecial):
        dictionary.add_symbol(f"w{number}")
    seed = torch.Generator().manual_seed(0)
    for language, length in zip("ab", lengths, strict=True):
        dictionary.save(str(Path(folder, f"dict.{language}.txt")))
        prefix = str(Path(folder, f"train.a-b.{language}"))
        builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", len(dictionary))
        for _ in range(sentences):
            sentence = torch.randint(
                dictionary.nspecial, len(dictionary), (length,), generator=seed
            )
            sentence[-1] = dictionary.eos()
            builder.add_item(sentence)
        builder.finalize(f"{prefix}.idx")
