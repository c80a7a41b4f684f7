"""A tiny language-modelling task, with models and batches that tests share."""

import functools
from argparse import Namespace
from typing import Any

import torch
from fairseq.data import MonolingualDataset, TokenBlockDataset
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, build_model
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from tests.support import random_sentences, words

TINY_LM: dict[str, Any] = {
    "decoder_layers": 2,
    "decoder_embed_dim": 16,
    "decoder_input_dim": 16,
    "decoder_output_dim": 16,
    "decoder_ffn_embed_dim": 24,
    "decoder_attention_heads": 4,
    "max_target_positions": 64,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
ADAPTIVE: dict[str, Any] = {
    "adaptive_input": True,
    "adaptive_input_cutoff": "8,16",
    "adaptive_input_factor": 2,
    "adaptive_softmax_cutoff": "8,16",
    "adaptive_softmax_factor": 2,
    "tie_adaptive_weights": True,
    "tie_adaptive_proj": True,
}


@functools.cache
def text_task() -> Any:
    """A language-modelling task over 20 words."""
    config = LanguageModelingConfig(tokens_per_sample=64, add_bos_token=False)
    return LanguageModelingTask(config, words())


def build_text_model(arch: str = "entmax_transformer_lm", seed: int = 1, **options: Any) -> Any:
    """A tiny language model, of this package or stock, in evaluation mode."""
    args = Namespace(arch=arch, **{**TINY_LM, **options})
    torch.manual_seed(seed)
    if not arch.startswith("entmax"):
        args.tokens_per_sample, args.add_bos_token, args.tpu = 64, False, False
        return build_model(args, text_task()).eval()
    ARCH_CONFIG_REGISTRY[arch](args)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, text_task()).eval()


def text_batch(lengths: tuple[int, ...] = (9, 9, 6), seed: int = 0) -> Any:
    """A batch for a language model as fairseq's data loader makes it, padded on the right."""
    dictionary = text_task().dictionary
    sentences = random_sentences(lengths, seed)
    ends = (64, dictionary.pad(), dictionary.eos())
    how = {"break_mode": "eos", "include_targets": True}
    blocks = TokenBlockDataset(sentences, list(lengths), *ends, **how)
    data = MonolingualDataset(blocks, blocks.sizes, dictionary, targets=["future"], shuffle=False)
    return data.collater([data[number] for number in range(len(sentences))])
