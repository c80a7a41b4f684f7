"""Pairs of texts: the source and the target of translation or summarization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from fairseq.data import data_utils
from torch import Tensor

from fairseq_entmax.analysis.data.annotations.annotated import Annotations
from fairseq_entmax.analysis.data.batch import Tables
from fairseq_entmax.analysis.data.data_types.base import DataType, check_vocabulary, groups_of
from fairseq_entmax.attentions import ATTENTIONS


class Seq2Seq(DataType):
    """A source and a target, for models with an encoder and a decoder."""

    name = "pairs"
    tasks = ("translation", "entmax_summarization")
    models = "models that translate or summarise"
    data = "pairs of texts"
    attentions: ClassVar = frozenset(ATTENTIONS)
    has_search = True

    def is_in(self, folder: str) -> bool:
        try:
            return None not in data_utils.infer_language_pair(folder)
        except (OSError, ValueError):
            return False

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
                f"{path} translates {pair[0]} to {pair[1]}, but the data is {data[0]} to "
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
