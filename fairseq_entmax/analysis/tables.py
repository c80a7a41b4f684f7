"""Facts on the tokens of a data set, and the sentences of its batches with them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis import tokens
from fairseq_entmax.analysis.annotations.annotated import Annotations
from fairseq_entmax.analysis.batch import Batch, Side


class Tables:
    """Facts on the tokens of both languages of pairs of texts."""

    def __init__(
        self, task: Any, device: torch.device, annotations: Annotations | None = None
    ) -> None:
        self.pad: int = task.source_dictionary.pad()
        self.eos: int = task.source_dictionary.eos()
        self.source = tokens.TokenTable.of(task.source_dictionary, task.cfg.source_lang).to(device)
        self.target = tokens.TokenTable.of(task.target_dictionary, task.cfg.target_lang).to(device)
        self.annotations = annotations
        self._in_source = torch.tensor(_in_source(task)).to(device)

    @property
    def device(self) -> torch.device:
        """Where batches are."""
        return self.source.rank.device

    def batch(self, sample: Any) -> Batch:
        """The sentences of a batch of fairseq's data loader."""
        net_input, annotated = sample["net_input"], None
        previous = net_input["prev_output_tokens"]
        if self.annotations is not None:
            annotated = self.annotations.batch(sample["id"], net_input["src_tokens"])
        return Batch(
            Side.of(net_input["src_tokens"], self.pad, self.eos, self.source),
            Side.of(previous, self.pad, self.eos, self.target),
            self.source,
            annotated,
            self._in_source[previous],
        )

    def with_target(self, batch: Batch, previous: Tensor) -> Batch:
        """The same source sentences with another input of the decoder, ``(batch, target)``."""
        target = Side.of(previous, self.pad, self.eos, self.target)
        return replace(batch, target=target, said=self._in_source[previous])


class TextTables(Tables):
    """Facts on the tokens of a text alone: it is source and target of its batches."""

    def __init__(
        self,
        dictionary: Any,
        device: torch.device,
        marks: Collection[int],
        annotations: Annotations | None = None,
    ) -> None:
        self.pad = dictionary.pad()
        self.eos = dictionary.eos()
        self.source = self.target = tokens.TokenTable.of(dictionary).to(device)
        self.annotations = annotations
        self._marks = torch.tensor(sorted({*marks, self.eos}), device=device)

    def batch(self, sample: Any) -> Batch:
        text, annotated = sample["net_input"]["src_tokens"], None
        if self.annotations is not None:
            annotated = self.annotations.batch(sample["id"], text)
        side = Side.of(text, self.pad, self._marks, self.source)
        return Batch(side, side, self.source, annotated)


def _in_source(task: Any) -> list[int]:
    """The number of each target token in the source's dictionary; -1 for special symbols."""
    source, target = task.source_dictionary, task.target_dictionary
    numbers = []
    for symbol in target.symbols:
        number = source.index(symbol)
        is_word = number >= source.nspecial and source[number] == symbol
        numbers.append(number if is_word else -1)
    return numbers
