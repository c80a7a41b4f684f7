"""Removes heads from a model and scores what is left on a data set."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from fairseq import utils
from torch import Tensor, nn

from fairseq_entmax.analysis.arguments import LOSS, OF_TEXT
from fairseq_entmax.analysis.data.data_types import type_of_model
from fairseq_entmax.analysis.data.generation import Search
from fairseq_entmax.analysis.models import likelihood
from fairseq_entmax.analysis.models.head_scaling import scaled_heads
from fairseq_entmax.attention import attention_modules
from fairseq_entmax.attentions import CROSS
from fairseq_entmax.head_names import Head

# Unknown words in references. Not fairseq's <<unk>>, whose tokens in sacreBLEU match <unk>
UNKNOWN_TARGET = "NOTINDICTIONARY"

# Heads that are removed together, in ascending order (none: the unchanged model), and their names
Removal = tuple[Head, ...]
Names = tuple[str, ...]


class SentenceScores(NamedTuple):
    """Per sentence, in the data set's order: the negative log likelihood in nats, summed over the
    target and its end of sentence, and the best hypothesis as text. None if not requested."""

    nll: list[float] | None
    translations: list[str] | None


def names_of(removal: Removal) -> Names:
    return tuple(str(head) for head in removal)


def text_of(names: Sequence[str]) -> str:
    """Join names of heads, in ascending order, into a text that ``parse_heads`` can read."""
    pairs = [name.split(":") for name in names]
    return ";".join(
        f"{attention}:{','.join(number for _, number in group)}"
        for attention, group in itertools.groupby(pairs, key=lambda pair: pair[0])
    )


def heads_of(model: Any) -> list[Head]:
    """Return all heads of a model, without those whose gate is closed in evaluation, and without
    copy heads: if only their output is gone, the model still copies with their weights."""
    copy = model.attention_options.copy
    copying = {Head(CROSS, copy.layer, head) for head in copy.copy_heads} if copy else set()
    found = {
        Head(attention, layer, head)
        for attention, layer, module in attention_modules(model)
        for head in range(module.num_heads)
        if module.gate is None or module.gate.at_evaluation()[head] > 0
    }
    return sorted(found - copying)


@contextmanager
def without_heads(model: nn.Module, heads: Collection[Head]) -> Iterator[None]:
    """Remove heads of a model within the block, and restore them afterwards."""
    with ExitStack() as stack:
        for attention, layer, module in attention_modules(model):
            gone = [head.head for head in heads if head[:2] == (attention, layer)]
            if gone:
                factor = torch.ones(module.num_heads, device=module.out_proj.weight.device)
                factor[gone] = 0.0
                stack.enter_context(scaled_heads(module, factor))
        yield


def sentence_losses(model: Any, sample: dict[str, Any]) -> Tensor:
    """The teacher-forced negative log likelihood of each target in nats, ``(batch,)`` float64. For
    a model with a sparse output, where this can be infinite, it is the training loss instead."""
    with torch.no_grad():
        data_type = type_of_model(model)
        output = data_type.run(model, sample)
        target, counts = data_type.targets(model, sample)
        if likelihood.has_zeros(model):
            losses = likelihood.loss_of_logits(output[0], target, counts, model.output_alpha)
        else:
            log_probs = data_type.log_probs(model, sample, output)
            losses = likelihood.negative_log_likelihood(log_probs, target, counts)
    return losses.double().view(len(target), -1).sum(-1)


class Scorer:
    """Scores a model with any of its heads removed; model, data and references are kept.

    Results are in the order of the sentence numbers, ``ids``. ``passes`` is the number of passes
    over the data for each removal."""

    def __init__(
        self,
        model: Any,
        task: Any,
        config: Any,
        samples: Sequence[dict[str, Any]],
        scores: Collection[str],
    ) -> None:
        self._model, self._task, self._config = model, task, config
        self._samples, self._scores = samples, scores
        self._dictionary = task.target_dictionary
        self._has_text = not OF_TEXT.isdisjoint(scores)
        self.passes = (LOSS in scores) + self._has_text
        if self._has_text:
            self._decoders = [task.build_bpe(config.bpe), task.build_tokenizer(config.tokenizer)]
        model.prepare_for_inference_(config)
        ids = [number for sample in samples for number in sample["id"].tolist()]
        self._order = sorted(range(len(ids)), key=ids.__getitem__)
        self.ids: list[int] = self._in_order([ids])
        data_type = type_of_model(model)
        counted = (data_type.targets(model, sample)[1] for sample in samples)
        lengths = [one.view(len(one), -1).sum(-1).tolist() for one in counted]
        self.target_tokens: list[int] = self._in_order(lengths)
        self.references = self._references() if self._has_text else []

    def score(
        self, heads: Collection[Head], advance: Callable[[int], None] = lambda sentences: None
    ) -> SentenceScores:
        """Score the model without some heads; ``advance`` gets the size of every finished batch."""
        with without_heads(self._model, heads):
            nll = self._losses(advance) if LOSS in self._scores else None
            translations = self._translations(advance) if self._has_text else None
        return SentenceScores(nll, translations)

    def _losses(self, advance: Callable[[int], None]) -> list[float]:
        losses = []
        for sample in self._samples:
            values = sentence_losses(self._model, sample)
            if not torch.isfinite(values).all():
                raise ValueError(
                    "some of the model's losses are not finite: its training failed, --fp16 is not "
                    "enough, or markers in the targets cannot be copied from their source: give "
                    "--scores rouge or bleu without loss"
                )
            losses.append(values.tolist())
            advance(len(losses[-1]))
        return self._in_order(losses)

    def _translations(self, advance: Callable[[int], None]) -> list[str]:
        # Sampling uses the same random numbers for each removal, in whatever order they run
        utils.set_torch_seed(self._config.common.seed)
        search, texts = Search(self._model, self._task, self._config), []
        for sample in self._samples:
            texts.append([self._text(best) for best in search.best(sample)])
            advance(len(texts[-1]))
        return self._in_order(texts)

    def _references(self) -> list[str]:
        pad = self._dictionary.pad()
        texts = []
        for sample in self._samples:
            targets = (utils.strip_pad(target, pad) for target in sample["target"])
            texts.append([self._text(target, UNKNOWN_TARGET) for target in targets])
        return self._in_order(texts)

    def _text(self, tokens: Tensor, unknown: str | None = None) -> str:
        text: str = self._dictionary.string(
            tokens.int().cpu(), self._config.common_eval.post_process, unk_string=unknown
        )
        for part in filter(None, self._decoders):
            text = part.decode(text)
        return text

    def _in_order(self, batches: Sequence[Sequence[Any]]) -> list[Any]:
        """Reorder values from the order of the batches to that of the data set."""
        values = [value for batch in batches for value in batch]
        return [values[place] for place in self._order]
