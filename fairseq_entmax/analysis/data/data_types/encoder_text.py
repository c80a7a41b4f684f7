"""Texts that an encoder alone reads: with masked words to predict, or with labels."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import numpy
import torch
from fairseq import data as fairseq_data
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask
from torch import Tensor

from fairseq_entmax.analysis.data.data_types.base import TextAlone
from fairseq_entmax.attentions import ENCODER_SELF

HEAD = "sentence_classification_head"
HEADS = "classification_heads."
NOTHING = -1  # the target where nothing is to be predicted


class EncoderText(TextAlone):
    """A text that an encoder alone reads."""

    attentions: ClassVar = frozenset({ENCODER_SELF})
    # Nothing is generated
    left_out: ClassVar = frozenset({"copy_agreement", "relevance"})
    stack = "encoder.sentence_encoder"
    not_counted = ("target_tokens",)

    def tokens(self, task: Any, sample: Any) -> dict[str, list[str]]:
        words = task.source_dictionary
        source = [words[token] for token in sample["net_input"]["src_tokens"][0].tolist()]
        return {"source": source, "queries": [], "targets": []}

    def typed_texts(self, task: Any, sources: Sequence[Tensor]) -> Any:
        """Make a data set of texts that a user typed, with no targets to predict."""
        sizes, pad = numpy.array([len(one) for one in sources]), task.source_dictionary.pad()
        first = getattr(task.cfg, "init_token", task.source_dictionary.bos())
        source = fairseq_data.PrependTokenDataset(fairseq_data.ListDataset(sources, sizes), first)
        targets = [self.empty_target(one) for one in source]
        target = fairseq_data.ListDataset(targets, [len(one) for one in targets])
        parts = {
            "id": fairseq_data.IdDataset(),
            "net_input": {
                "src_tokens": fairseq_data.RightPadDataset(source, pad_idx=pad),
                "src_lengths": fairseq_data.NumelDataset(source),
            },
            "target": fairseq_data.RightPadDataset(target, pad_idx=NOTHING),
        }
        return fairseq_data.NestedDictionaryDataset(parts, sizes=[source.sizes])

    def empty_target(self, text: Tensor) -> Tensor:
        """Return the target, with nothing to predict, of a text that a user typed."""
        raise NotImplementedError

    def item_text(self, item: Any) -> str:
        return f"{item['net_input.src_tokens'].tolist()}:{item['target'].tolist()}"


class MaskedText(EncoderText):
    """Texts as ``masked_lm`` makes them: the model predicts masked words."""

    name = "masked"
    tasks = ("masked_lm",)
    models = "masked language models"
    data = "a text alone, for masked language models"
    task_class = MaskedLMTask
    no_parses = "parses do not fit a text with masked words"
    options = (
        *("sample_break_mode", "tokens_per_sample", "mask_prob", "leave_unmasked_prob"),
        *("random_token_prob", "shorten_method", "shorten_data_split_list"),
    )

    def empty_target(self, text: Tensor) -> Tensor:
        return torch.full_like(text, NOTHING)

    def targets(self, model: Any, sample: Any) -> tuple[Tensor, Tensor]:
        target: Tensor = sample["target"]
        return target, (target != model.encoder.dictionary.pad()) & (target != NOTHING)


class LabelledText(EncoderText):
    """Texts with labels, or pairs of texts, as ``sentence_prediction`` makes them."""

    name = "labelled"
    tasks = ("sentence_prediction",)
    models = "models that classify"
    data = "texts with labels"
    task_class = SentencePredictionTask
    options = (
        *("num_classes", "init_token", "separator_token", "max_positions", "shorten_method"),
        *("shorten_data_split_list", "regression_target", "classification_head_name"),
    )

    def is_in(self, folder: str) -> bool:
        return os.path.isdir(os.path.join(folder, "input0"))

    def has_model(self, model: Any) -> bool:
        return super().has_model(model) and bool(getattr(model, "classification_heads", ()))

    def complete(self, args: Namespace, named: Collection[str]) -> None:
        super().complete(args, named)
        if args.num_classes is None or args.num_classes < 1:
            raise ValueError(
                f"--num-classes got {args.num_classes}, and {args.path} does not say how many "
                f"classes it has: give their number"
            )
        if getattr(args, "regression_target", False):
            raise ValueError(
                f"{args.path} predicts numbers (--regression-target): only models that predict "
                f"classes can be analysed"
            )

    def check_options(self, args: Namespace) -> None:
        super().check_options(args)
        is_pair = os.path.isdir(os.path.join(args.data, "input1"))
        if args.conllu is not None and (is_pair or args.init_token is not None):
            raise ValueError(
                f"--conllu got {args.conllu!r}: parses need single texts without --init-token: leave it out"
            )

    def setup_task(self, args: Namespace, config: Any) -> Any:
        known = vars(SentencePredictionConfig())
        options = {name: value for name, value in vars(args).items() if name in known}
        defaults = {"regression_target": False, "classification_head_name": HEAD}
        task = SentencePredictionConfig(**{**defaults, **options, "no_shuffle": True})
        return SentencePredictionTask.setup_task(task)

    def check_fit(self, state: dict[str, Any], path: str, task: Any, markers: int) -> None:
        super().check_fit(state, path, task, markers)
        name, classes = task.cfg.classification_head_name, task.cfg.num_classes
        weight = state["model"].get(f"{HEADS}{name}.out_proj.weight")
        if weight is None:
            heads = {key.split(".")[1] for key in state["model"] if key.startswith(HEADS)}
            raise ValueError(
                f"{path} has no classification head {name}: it has {', '.join(sorted(heads)) or 'none'}"
            )
        if weight.size(0) != classes:
            raise ValueError(
                f"{path} has {weight.size(0)} classes, but --num-classes is {classes}: leave --num-classes out"
            )

    def build_model(self, checkpoint: Any, task: Any) -> Any:
        model = super().build_model(checkpoint, task)
        name = task.cfg.classification_head_name
        model.register_classification_head(name, num_classes=task.cfg.num_classes)
        # A checkpoint may have other heads, from earlier training
        model.head_in_use = name
        return model

    def run(self, model: Any, sample: Any) -> tuple[Tensor, Any]:
        names = list(model.classification_heads)
        name = getattr(model, "head_in_use", HEAD if HEAD in names else names[0])
        output: tuple[Tensor, Any] = model(
            **sample["net_input"], features_only=True, classification_head_name=name
        )
        return output

    def empty_target(self, text: Tensor) -> Tensor:
        return torch.tensor([NOTHING])

    def targets(self, model: Any, sample: Any) -> tuple[Tensor, Tensor]:
        target = sample["target"].view(-1)
        return target, target != NOTHING

    def predicted_class(self, task: Any, logits: Tensor) -> str:
        """Return a text's likeliest class and its probability, from logits ``(1, classes)``."""
        label = int(logits.argmax())
        words = task.label_dictionary
        return f"{words[label + words.nspecial]} ({float(logits.softmax(-1)[0, label]):.0%})"
