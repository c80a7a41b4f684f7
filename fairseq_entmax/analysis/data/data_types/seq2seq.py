"""Pairs of texts: the source and the target of translation and of summaries."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from fairseq_entmax import data_bin
from fairseq_entmax.analysis.data.annotations.annotated import Annotations
from fairseq_entmax.analysis.data.batch import Tables
from fairseq_entmax.analysis.data.data_types.base import DataType, groups_of
from fairseq_entmax.attentions import ATTENTIONS


class Seq2Seq(DataType):
    """A source and a target: models with an encoder and a decoder."""

    name = "pairs"
    tasks = ("translation", "entmax_summarization")
    models = "models that translate or write summaries"
    data = "pairs of texts"
    attentions: ClassVar = frozenset(ATTENTIONS)
    has_search = True

    def is_in(self, folder: str) -> bool:
        return data_bin.languages(folder, None, None) is not None

    def has_task(self, task: Any) -> bool:
        return hasattr(task, "src_dict")

    def check_dictionaries(self, args: Namespace) -> None:
        pair = data_bin.languages(args.data, args.source_lang, args.target_lang)
        if pair is not None:
            data_bin.check_dictionaries(args.data, pair)

    def setup_task(self, args: Namespace, config: Any) -> Any:
        try:
            return super().setup_task(args, config)
        except Exception as error:  # fairseq raises plain Exception where it cannot infer languages
            raise ValueError(
                f"cannot read the dictionaries in {args.data}: give --source-lang and "
                f"--target-lang as they are in its file names ({error})"
            ) from error

    def check_dataset(self, task: Any, dataset: Any, subset: str) -> None:
        if dataset.tgt is None:
            raise ValueError(
                f"--gen-subset got {subset!r}, which has no target side in {task.cfg.data}: give "
                f"data with both languages"
            )

    def check_fit(self, state: dict[str, Any], path: str, task: Any, markers: int) -> None:
        trained = next(iter(groups_of(state)), {})
        pair = trained.get("source_lang"), trained.get("target_lang")
        data = task.cfg.source_lang, task.cfg.target_lang
        if all(pair) and pair != data:
            raise ValueError(
                f"{path} translates {pair[0]} to {pair[1]}, and the data is {data[0]} to "
                f"{data[1]}: give --source-lang {pair[0]} --target-lang {pair[1]}, or other data"
            )
        sides = {"encoder": task.source_dictionary, "decoder": task.target_dictionary}
        for side, dictionary in sides.items():
            check_vocabulary(state, path, side, dictionary, markers)

    def tables(self, task: Any, device: Any, annotations: Annotations | None = None) -> Tables:
        return Tables(task, device, annotations)

    def tokens(self, task: Any, sample: Any) -> dict[str, list[str]]:
        source, target = task.source_dictionary, task.target_dictionary
        net_input = sample["net_input"]
        return {
            "source": [source[token] for token in net_input["src_tokens"][0].tolist()],
            "queries": [target[token] for token in net_input["prev_output_tokens"][0].tolist()],
            "targets": [target[token] for token in sample["target"][0].tolist()],
        }

    def counted(self, task: Any, numbers: dict[str, int]) -> dict[str, Any]:
        languages = {name: getattr(task.cfg, name) for name in ("source_lang", "target_lang")}
        return {**languages, **numbers}

    def scored(self, task: Any, counts: dict[str, int]) -> dict[str, Any]:
        return self.counted(task, counts)

    def targets(self, model: Any, sample: Any) -> tuple[Tensor, Tensor]:
        target: Tensor = sample["target"]
        return target, target != model.decoder.padding_idx

    def alone(self, model: Any, sample: Any) -> Iterator[tuple[dict[str, Tensor], int, int]]:
        sides: Any = (model.encoder, model.decoder)
        tokens = sample["net_input"]["src_tokens"], sample["net_input"]["prev_output_tokens"]
        for pair in zip(*tokens, strict=True):
            # (1, length)
            source, previous = (
                one[one != side.padding_idx][None] for one, side in zip(pair, sides, strict=True)
            )
            taken = {
                "src_tokens": source,
                "src_lengths": torch.tensor([source.size(1)], device=source.device),
                "prev_output_tokens": previous,
            }
            yield taken, source.size(1), previous.size(1)


def check_vocabulary(
    state: dict[str, Any], path: str, side: str, dictionary: Any, markers: int = 0
) -> None:
    """Refuse a checkpoint whose embedding is of another dictionary."""
    prefix = f"{side}.embed_tokens."
    # One matrix, or one for each band of an adaptive input
    rows = [
        weight.size(0)
        for name, weight in state["model"].items()
        if name == f"{prefix}weight"
        or (name.startswith(f"{prefix}embeddings.") and name.endswith(".0.weight"))
    ]
    if rows and sum(rows) + markers != len(dictionary):
        raise ValueError(
            f"{path} has {sum(rows) + markers} {side} tokens, and the data's dictionary "
            f"has {len(dictionary)}: give the data that it was trained with"
        )
