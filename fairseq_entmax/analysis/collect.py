"""One teacher-forced pass over a data set, for several models at once."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
from fairseq import utils
from torch import Tensor

from fairseq_entmax.analysis.annotations.annotated import AnnotatedBatch, Annotations
from fairseq_entmax.analysis.annotations.linguistic import AnnotationCounts, LinguisticStatistics
from fairseq_entmax.analysis.batch import Batch
from fairseq_entmax.analysis.loading import LoadedModel, load_dataset
from fairseq_entmax.analysis.maps import LARGEST, MostDifferent, map_bytes, sentence_maps
from fairseq_entmax.analysis.recorder import record_attention
from fairseq_entmax.analysis.statistics import RARE_RANK, ModelStatistics
from fairseq_entmax.analysis.tokens import (
    DECLARATIVE,
    INTERROGATIVE,
    TokenTable,
    final_punctuation,
    rare_tokens,
)
from fairseq_entmax.attentions import ATTENTIONS, CROSS, ENCODER_SELF
from fairseq_entmax.modules import attention_modules


class Tables:
    """Facts on the tokens of both languages.

    Args:
        task: fairseq's translation task.
        device: where batches are.
    """

    def __init__(self, task: Any, device: torch.device) -> None:
        self.pad: int = task.source_dictionary.pad()
        self.eos: int = task.source_dictionary.eos()
        self.source = TokenTable.of(task.source_dictionary, task.cfg.source_lang).to(device)
        self.target = TokenTable.of(task.target_dictionary, task.cfg.target_lang).to(device)

    def batch(self, sample: Any) -> Batch:
        """The sentences of a batch of fairseq's data loader."""
        return Batch.of(sample, self.pad, self.eos, self.source, self.target)


class DataCounts:
    """What the data set consists of.

    Attributes:
        ids: the numbers of its sentences that were seen, 8 bytes each.
    """

    def __init__(self) -> None:
        self.ids = array("q")
        self._counts = dict.fromkeys(
            (
                *("sentences", "source_tokens", "target_tokens"),
                *("interrogative_sentences", "declarative_sentences", "rare_word_sentences"),
            ),
            0,
        )

    def update(self, sample: Any, batch: Batch) -> None:
        """Add the sentences of a batch."""
        self.ids.extend(sample["id"].tolist())
        source, table = batch.source, batch.table
        assert table is not None
        _, ending = final_punctuation(table, source.tokens, ~source.real | source.end)
        _, _, rank = rare_tokens(table, source.tokens)
        self._counts["sentences"] += len(source.tokens)
        counted = {
            "source_tokens": source.real.sum(),
            "target_tokens": batch.target.real.sum(),
            "interrogative_sentences": (ending == INTERROGATIVE).sum(),
            "declarative_sentences": (ending == DECLARATIVE).sum(),
            "rare_word_sentences": (rank >= RARE_RANK).sum(),
        }
        for name, number in counted.items():
            self._counts[name] += int(number.item())

    def as_json(self) -> dict[str, int]:
        """Name to number."""
        return dict(self._counts)


class ModelCollector:
    """What is known of one model after any number of batches.

    Args:
        loaded: the model.
        wanted: the measures to make, of :data:`arguments.MEASURES`.
        annotations: of the source, or None.

    Attributes:
        statistics: of its attention.
        linguistic: of its attention against the annotations, where there are any.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        wanted: Collection[str],
        annotations: Annotations | None = None,
    ) -> None:
        self.loaded = loaded
        self.statistics = ModelStatistics(wanted)
        self.linguistic = None if annotations is None else LinguisticStatistics(annotations)
        self._loss: Tensor | float = 0.0
        self._tokens = 0

    def update(self, sample: Any, batch: Batch, annotated: AnnotatedBatch | None = None) -> Tensor:
        """Run the model on a batch.

        Args:
            sample: as fairseq's data loader makes it.
            batch: its sentences.
            annotated: their annotations.

        Returns:
            How much heads differ in each sentence: ``(batch,)`` float64.
        """
        attention, logits = record_attention(self.loaded.model, sample)
        differences = self.statistics.update(attention, batch)
        if self.linguistic is not None and annotated is not None:
            for name in (ENCODER_SELF, CROSS):
                queries, _ = batch.sides(name)
                for layer, weights in attention.get(name, {}).items():
                    self.linguistic.update(name, layer, weights, annotated, queries.real)
        target = sample["target"]
        real = target != self.loaded.model.decoder.padding_idx
        net_output = (logits, None)
        log_probs = self.loaded.model.get_normalized_probs(net_output, True, sample)
        picked = log_probs.gather(2, target[:, :, None]).squeeze(2)
        loss = -picked.masked_fill(~real, 0).sum(dtype=torch.float64)
        if not torch.isfinite(loss):
            numbers = ", ".join(map(str, sample["id"].tolist()[:5]))
            raise ValueError(
                f"{self.loaded.path} gives numbers that are not finite, in one of the sentences "
                f"{numbers}, … of the data set: it did not train well, or needs more than --fp16"
            )
        self._loss = self._loss + loss
        self._tokens += sample["ntokens"]
        return differences

    @property
    def loss(self) -> float | None:
        """Negative log likelihood in nats a target token; None before any."""
        return float(self._loss) / self._tokens if self._tokens else None


def collect(
    batches: Iterable[Any],
    collectors: Sequence[ModelCollector],
    tables: Tables,
    chosen: MostDifferent | None,
    annotations: Annotations | None = None,
) -> tuple[DataCounts, AnnotationCounts | None]:
    """Run all models over batches.

    Args:
        batches: as fairseq's data loader makes them; empty ones are left out.
        collectors: what is updated, one a model.
        tables: facts on tokens.
        chosen: offered every sentence, with the mean difference over models; None offers none.
        annotations: of the source, or None.

    Returns:
        What the data consists of, and its annotations.

    Raises:
        ValueError: the annotations are of another text.
    """
    counts = DataCounts()
    annotation_counts = None if annotations is None else AnnotationCounts(annotations)
    for sample in batches:
        if not sample:
            continue
        sample = _on_device(sample, tables.source.rank.device)
        batch = tables.batch(sample)
        counts.update(sample, batch)
        annotated = None
        if annotations is not None and annotation_counts is not None:
            annotated = annotations.batch(sample["id"], batch.source.tokens)
            annotation_counts.update(annotated)
        differences = [collector.update(sample, batch, annotated) for collector in collectors]
        if chosen is not None:
            lengths = torch.maximum(batch.source.lengths, batch.target.lengths)
            chosen.update(sample["id"], torch.stack(differences).mean(dim=0), lengths)
    return counts, annotation_counts


def samples(
    dataset: Any,
    sentences: Sequence[int],
    device: torch.device,
    at_once: int = 1,
    max_tokens: int | None = None,
) -> Iterator[Any]:
    """Batches of given sentences of a data set, those of a like length together.

    Args:
        dataset: of fairseq's translation task.
        sentences: their numbers in the data set.
        device: where the batches go.
        at_once: how many to a batch at most, 1 or more.
        max_tokens: how many tokens to a batch at most, padding included; a longer sentence is a
            batch by itself. None for any number.
    """
    ordered = sorted(sentences, key=lambda number: dataset.num_tokens(number))
    batch: list[int] = []
    for number in ordered:
        tokens = (len(batch) + 1) * int(dataset.num_tokens(number))
        if batch and (len(batch) >= at_once or (max_tokens is not None and tokens > max_tokens)):
            yield _collated(dataset, batch, device)
            batch = []
        batch.append(number)
    if batch:
        yield _collated(dataset, batch, device)


def load_samples(
    task: Any, subset: str, sentences: Sequence[int], at_once: int = 1, device: str = "cpu"
) -> list[Any]:
    """Batches of given sentences, for notebooks.

    Args:
        task: of :func:`load_task`.
        subset: ``train``, ``valid`` or ``test``.
        sentences: their numbers in the data set, from 0.
        at_once: how many to a batch, 1 or more; those of a like length are together.
        device: where the batches go.

    Raises:
        ValueError: there is no such data set, or no such sentence in it.
    """
    dataset = load_dataset(task, subset)
    for number in sentences:
        if not 0 <= number < len(dataset):
            raise ValueError(f"{subset} has the sentences 0 to {len(dataset) - 1}, not {number}")
    return list(samples(dataset, sentences, torch.device(device), at_once))


def _collated(dataset: Any, sentences: Sequence[int], device: torch.device) -> Any:
    return _on_device(dataset.collater([dataset[number] for number in sentences]), device)


def shown_at_most(dataset: Any, models: Sequence[Any], sentences: Sequence[int]) -> list[int]:
    """The first of some sentences, as many as have maps that a report can show together.

    Args:
        dataset: fairseq's, with ``src_sizes`` and ``tgt_sizes``.
        models: of this package.
        sentences: numbers in the data set.
    """
    heads = dict.fromkeys(ATTENTIONS, 0)
    for model in models:
        for attention, _, module in attention_modules(model):
            heads[attention] += module.num_heads if module.mapping is not None else 0
    shown, total = [], 0
    for number in sentences:
        source, target = int(dataset.src_sizes[number]), int(dataset.tgt_sizes[number])
        sizes = {ENCODER_SELF: (source, source), CROSS: (target, source)}
        for attention, count in heads.items():
            total += map_bytes([count, *sizes.get(attention, (target, target))])
        if total > LARGEST:
            break
        shown.append(number)
    return shown


def maps_of(
    dataset: Any, sentences: Sequence[int], models: Sequence[LoadedModel], task: Any, tables: Tables
) -> list[dict[str, Any]]:
    """The attention maps of sentences, in the order given, as ``analysis.json`` has them."""
    source, target = task.source_dictionary, task.target_dictionary
    entries = []
    for number in sentences:
        (sample,) = samples(dataset, [number], tables.source.rank.device)
        net_input = sample["net_input"]
        entries.append(
            {
                "sentence": number,
                "source": [source[token] for token in net_input["src_tokens"][0].tolist()],
                "queries": [target[token] for token in net_input["prev_output_tokens"][0].tolist()],
                "targets": [target[token] for token in sample["target"][0].tolist()],
                "models": [sentence_maps(record_attention(m.model, sample)[0]) for m in models],
            }
        )
    return entries


def _on_device(sample: Any, device: torch.device) -> Any:
    return utils.move_to_cuda(sample, device) if device.type == "cuda" else sample
