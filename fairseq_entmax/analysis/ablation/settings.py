"""What the scores of an ablation depend on, so that scores of other settings are not mixed in."""

from __future__ import annotations

import hashlib
import json
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf

from fairseq_entmax.analysis import loading
from fairseq_entmax.analysis.arguments import OF_TEXT
from fairseq_entmax.analysis.kinds import kind_of_task

# Generation options on which the first hypothesis does not depend
PRINTED = ("sacrebleu", "nbest", "no_seed_provided", "print_alignment", "print_step")


def scoring_settings(
    args: Namespace, config: Any, task: Any, dataset: Any, ids: Sequence[int]
) -> dict[str, Any]:
    """The settings, in JSON's types.

    A checkpoint and data that are moved stay the same. Of the options of generation, which
    matter to generated text alone, only those that are not at fairseq's default are there, and the beam.
    """
    settings: dict[str, Any] = {
        "scores": args.scores,
        "checkpoint_sha256": _file_hash(args.path),
        "data_sha256": _data_hash(task, dataset, ids),
        "device": loading.device_of(args).type,
        "precision": "float16" if args.fp16 else "bfloat16" if args.bf16 else "float32",
        "max_tokens": args.max_tokens,
        "batch_size": args.batch_size,
        "required_batch_size_multiple": args.required_batch_size_multiple,
    }
    if not OF_TEXT.isdisjoint(args.scores):
        settings["generation"] = _search(args, config)
        settings["text"] = {
            "post_process": args.post_process,
            "bpe": _component(config.bpe),
            "tokenizer": _component(config.tokenizer),
        }
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return plain


def _search(args: Namespace, config: Any) -> dict[str, Any]:
    defaults = vars(GenerationConfig())
    search = {
        name: value
        for name, value in OmegaConf.to_container(config.generation).items()
        if name not in PRINTED and (name == "beam" or value != defaults.get(name))
    }
    # A task that searches in another way has its own options beside those of fairseq's
    known = vars(TranslationConfig())
    search |= {
        name: value
        for name, value in OmegaConf.to_container(config.task).items()
        if name not in known and name != "_name"
    }
    return {**search, "seed": args.seed} if args.sampling else search


def _component(config: Any) -> Any:
    """The settings of one of fairseq's components; None where there is none."""
    return None if config is None or config._name is None else OmegaConf.to_container(config)


def _file_hash(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _data_hash(task: Any, dataset: Any, ids: Sequence[int]) -> str:
    """Of the sentences that are scored, as the model sees them, and of their dictionaries."""
    digest, kind = hashlib.sha256(), kind_of_task(task)
    for dictionary in (task.source_dictionary, task.target_dictionary):
        digest.update("\n".join(dictionary.symbols).encode() + b"\n\n")
    for number in ids:
        digest.update(f"{number}:{kind.item_text(dataset[number])}\n".encode())
    return digest.hexdigest()
