"""Trained models that classify, from Python: labels of plain text, and the words behind them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq import utils
from fairseq.data import data_utils, encoders
from torch import Tensor, nn

from fairseq_entmax.attentions import PREMISE
from fairseq_entmax.classification_data import class_names

# One text, or the two of a pair
Text = str | tuple[str, str]


@dataclass(frozen=True)
class Prediction:
    """What a model says of one text or pair.

    Attributes:
        label: the most likely class; None for regression.
        log_probs: label to logarithm of its probability; empty for regression.
        values: the numbers of regression; empty for classes.
        tokens: of the source, as the model read them.
        pooling: the name of each attention that pools to its weights, ``(heads, tokens)`` float32;
            of several models, their mean.
    """

    label: str | None
    log_probs: dict[str, float]
    values: list[float]
    tokens: list[str]
    pooling: dict[str, Tensor]

    def selected(self, name: str | None = None) -> list[tuple[str, float]]:
        """The tokens that an attention gives a weight above zero, with it, the largest first.

        Args:
            name: of the attention; None for the one there is, or for the second text of a pair.
        """
        weights = self.pooling[next(iter(self.pooling)) if name is None else name]
        pairs = zip(self.tokens, weights.mean(0).tolist(), strict=True)
        return sorted([pair for pair in pairs if pair[1] > 0], key=lambda pair: -pair[1])


class ClassifierHubInterface(nn.Module):
    """One or several models that classify, and how text becomes what they read.

    Args:
        cfg: fairseq's settings; ``bpe`` and ``tokenizer`` say how text is cut.
        task: ``sentence_prediction``.
        models: their probabilities are averaged.

    Raises:
        ValueError: a model does not classify, or the models do so in different ways.
    """

    def __init__(self, cfg: Any, task: Any, models: Sequence[Any]) -> None:
        super().__init__()
        self.cfg = cfg
        self.task = task
        self.models = nn.ModuleList(models)
        if not all(hasattr(model, "poolings") for model in models):
            raise ValueError(
                "the checkpoint is of a model that is no classifier: give one that was trained "
                "with --arch entmax_classifier or entmax_classifier_small"
            )
        name = task.cfg.classification_head_name
        ways = [
            (
                {place: pooling.num_heads for place, pooling in model.poolings.items()},
                model.classification_heads[name].out_proj.out_features,
            )
            for model in models
        ]
        if any(way != ways[0] for way in ways):
            raise ValueError(
                f"the models of an ensemble have the same --pair-attention, --pooling-heads and "
                f"number of classes, but these have {', '.join(map(str, ways))}: leave one out"
            )
        self.tokenizer = encoders.build_tokenizer(cfg.tokenizer)
        self.bpe = encoders.build_bpe(cfg.bpe)
        limits = [model.max_positions() for model in models]
        self.max_positions = int(utils.resolve_max_positions(task.max_positions(), *limits))

    @property
    def is_pair(self) -> bool:
        """Whether the models pool the texts of a pair apart."""
        first: Any = self.models[0]
        return PREMISE in first.poolings

    @property
    def device(self) -> torch.device:
        """Where the models are."""
        return next(self.parameters()).device

    def encode(self, text: Text) -> Tensor:
        """The source ``(tokens,)`` of a text or a pair, as the task makes it of its data.

        Raises:
            ValueError: it is neither a text nor a pair, or the models read pairs alone; it is
                longer than they can read, and the task does not cut it.
        """
        task, parts = self.task.cfg, [text] if isinstance(text, str) else list(text)
        if len(parts) != 2 - isinstance(text, str):
            raise ValueError(
                f"predict takes texts and pairs (first, second) of texts, not {text!r:.80}"
            )
        if self.is_pair and len(parts) == 1:
            raise ValueError(
                f"this model reads pairs of texts, by --pair-attention: give predict a pair "
                f"(first, second) instead of the one text {text!r:.80}"
            )
        tokens = [self._encode_one(one) for one in parts]
        if task.init_token is not None:
            tokens.insert(0, torch.tensor([task.init_token]))
        if len(parts) > 1 and task.separator_token is not None:
            tokens.insert(-1, torch.tensor([task.separator_token]))
        source = torch.cat(tokens)
        if len(source) > self.max_positions and str(task.shorten_method) == "none":
            raise ValueError(
                f"a text has {len(source)} tokens, and the model reads {self.max_positions} at "
                f"the most: shorten it"
            )
        return source[: self.max_positions]

    def _encode_one(self, text: str) -> Tensor:
        for part in (self.tokenizer, self.bpe):
            text = text if part is None else part.encode(text)
        dictionary = self.task.source_dictionary
        tokens: Tensor = dictionary.encode_line(text, append_eos=True, add_if_not_exist=False)
        return tokens.long()

    @torch.no_grad()
    def predict(
        self, texts: Sequence[Text], batch_size: int = 32, head: str | None = None
    ) -> list[Prediction]:
        """Classify texts, or pairs ``(first, second)``.

        Args:
            texts: as they were before the tokenizer and the subwords of ``from_pretrained``.
            batch_size: how many at once; the result does not depend on it.
            head: the classification head; None for that of the task.

        Raises:
            ValueError: as :meth:`encode`.
        """
        if isinstance(texts, str):
            raise ValueError("predict takes a list of texts, not one text")
        head = head or str(self.task.cfg.classification_head_name)
        predictions: list[Prediction] = []
        was_training = [model.training for model in self.models]
        self.models.eval()
        for start in range(0, len(texts), batch_size):
            sources = [self.encode(text) for text in texts[start : start + batch_size]]
            predictions += self._predict(sources, head)
        for model, training in zip(self.models, was_training, strict=True):
            model.train(training)
        return predictions

    def _predict(self, sources: Sequence[Tensor], head: str) -> Iterator[Prediction]:
        dictionary = self.task.source_dictionary
        tokens = data_utils.collate_tokens(sources, dictionary.pad()).to(self.device)
        lengths = torch.tensor([len(source) for source in sources], device=self.device)
        outputs = [
            model(tokens, lengths, features_only=True, classification_head_name=head)
            for model in self.models
        ]
        is_regression = self.task.cfg.regression_target
        if is_regression:
            scores = torch.stack([output[0].float() for output in outputs]).mean(0)
        else:
            first: Any = self.models[0]
            log_probs = [first.get_normalized_probs(output, True) for output in outputs]
            scores = torch.stack(log_probs).logsumexp(0) - math.log(len(log_probs))
        pooling = {
            name: torch.stack([output[1]["pooling"][name].float() for output in outputs]).mean(0)
            for name in outputs[0][1]["pooling"]
        }
        labels = [str(number) for number in range(scores.size(1))]
        if head == self.task.cfg.classification_head_name:  # else the data's labels are not of it
            labels = class_names(self.task.label_dictionary, scores.size(1))
        for row, source in enumerate(sources):
            own = scores[row].tolist()
            yield Prediction(
                None if is_regression else labels[int(scores[row].argmax())],
                {} if is_regression else dict(zip(labels, own, strict=True)),
                own if is_regression else [],
                [dictionary[int(token)] for token in source],
                {name: weights[row, :, : len(source)].cpu() for name, weights in pooling.items()},
            )
