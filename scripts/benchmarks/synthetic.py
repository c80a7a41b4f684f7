"""Tasks, models and binarised data of random words, for timings at chosen sizes."""

from __future__ import annotations

import argparse
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.translation import TranslationConfig, TranslationTask

import fairseq_entmax.models  # noqa: F401

# About the size of the dictionary of transformer_iwslt_de_en's data
WORDS = 8000


def lengths_of(text: str) -> tuple[int, int]:
    """Words in a source and in a target, from a text such as ``400x100``."""
    try:
        source, target = map(int, text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}: give random:SOURCExTARGET, such as random:400x100"
        ) from None
    return source, target


def task_of() -> Any:
    """A translation task with a dictionary of :data:`WORDS` words."""
    dictionary = Dictionary()
    for number in range(WORDS - dictionary.nspecial):
        dictionary.add_symbol(f"w{number}")
    config = TranslationConfig(source_lang="a", target_lang="b")
    return TranslationTask(config, dictionary, dictionary)


def build(arch: str, task: Any, size: dict[str, Any], **options: Any) -> Any:
    """A model whose encoder and decoder have these sizes, always with the same seed."""
    sides = {f"{side}_{key}": size[key] for side in ("encoder", "decoder") for key in size}
    args = Namespace(arch=arch, share_all_embeddings=True, **sides, **options)
    ARCH_CONFIG_REGISTRY[arch](args)
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def write(folder: str | Path, sentences: int, lengths: tuple[int, int]) -> None:
    """Make a training set from ``a`` to ``b`` in a folder, as ``fairseq-preprocess`` does."""
    dictionary = task_of().source_dictionary
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
