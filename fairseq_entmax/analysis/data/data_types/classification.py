"""Texts, or pairs of them, with a label: what classifiers read."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import torch
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask
from torch import Tensor

from fairseq_entmax.analysis.data.annotations.annotated import Annotations
from fairseq_entmax.analysis.data.batch import TextTables
from fairseq_entmax.analysis.data.data_types.base import DataType, trained_options
from fairseq_entmax.analysis.data.data_types.class_results import ClassResults, label_names
from fairseq_entmax.analysis.data.data_types.seq2seq import check_vocabulary
from fairseq_entmax.analysis.data.data_types.typical import VariedTexts
from fairseq_entmax.attentions import ENCODER_SELF
from fairseq_entmax.classification_data import check_words
from fairseq_entmax.models.classifier_loading import HEADS

# How texts become sources; as the checkpoint was trained, where the command does not say
OPTIONS = (
    *("num_classes", "init_token", "separator_token", "max_positions", "shorten_method"),
    *("shorten_data_split_list", "regression_target", "classification_head_name"),
)
HEAD = "sentence_classification_head"


class Classification(DataType):
    """Texts with labels: an encoder alone, whose words are pooled; the text is source and target."""

    name = "labelled"
    tasks = ("sentence_prediction",)
    models = "classifiers"
    data = "texts with labels, for classifiers"
    attentions: ClassVar = frozenset({ENCODER_SELF})
    # There is nothing that is written
    left_out: ClassVar = frozenset({"copy_agreement", "relevance"})

    def is_in(self, folder: str) -> bool:
        return os.path.isdir(os.path.join(folder, "input0"))

    def has_task(self, task: Any) -> bool:
        return isinstance(task, SentencePredictionTask)

    def complete(self, args: Namespace, named: Collection[str]) -> None:
        first = args.path.split(os.pathsep)[0]
        missing = [name for name in OPTIONS if name not in named]
        vars(args).update(trained_options(first, missing))
        if args.num_classes is None or args.num_classes < 1:
            raise ValueError(
                f"--num-classes got {args.num_classes}, and {first} does not say how many there "
                f"are: give the number of classes"
            )
        if getattr(args, "regression_target", False):
            raise ValueError(
                f"{first} predicts numbers, by --regression-target: only models that tell "
                f"classes apart can be analysed"
            )

    def check_options(self, args: Namespace) -> None:
        super().check_options(args)
        is_pair = os.path.isdir(os.path.join(args.data, "input1"))
        if args.conllu is not None and (is_pair or args.init_token is not None):
            raise ValueError(
                f"--conllu got {args.conllu!r}: parses fit a text alone, without a second one and "
                f"without --init-token: leave it out"
            )

    def setup_task(self, args: Namespace, config: Any) -> Any:
        known = vars(SentencePredictionConfig())
        options = {name: value for name, value in vars(args).items() if name in known}
        defaults = {"regression_target": False, "classification_head_name": HEAD}
        task = SentencePredictionConfig(**{**defaults, **options, "no_shuffle": True})
        check_words(task)
        return SentencePredictionTask.setup_task(task)

    def check_fit(self, state: dict[str, Any], path: str, task: Any, markers: int) -> None:
        check_vocabulary(state, path, "encoder", task.source_dictionary)
        name, classes = task.cfg.classification_head_name, task.cfg.num_classes
        weight = state["model"].get(f"{HEADS}{name}.out_proj.weight")
        if weight is None:
            heads = {key.split(".")[1] for key in state["model"] if key.startswith(HEADS)}
            raise ValueError(
                f"{path} has no classification head {name}, but {', '.join(sorted(heads))}"
            )
        if weight.size(0) != classes:
            raise ValueError(
                f"{path} tells {weight.size(0)} classes apart, and --num-classes is "
                f"{classes}: leave --num-classes out"
            )

    def build_model(self, saved: Any, task: Any) -> Any:
        model = super().build_model(saved, task)
        name = task.cfg.classification_head_name
        model.register_classification_head(name, num_classes=task.cfg.num_classes)
        # A checkpoint may have others, of earlier training
        model.head_in_use = name
        return model

    def tables(self, task: Any, device: Any, annotations: Annotations | None = None) -> TextTables:
        symbols = (task.cfg.init_token, task.cfg.separator_token, task.source_dictionary.bos())
        marks = {mark for mark in symbols if mark is not None}
        return TextTables(task.source_dictionary, device, marks, annotations)

    def choice(self, number: int) -> VariedTexts:
        return VariedTexts(number)

    def offer(
        self,
        choice: Any,
        sample: Any,
        differences: Tensor,
        lengths: Tensor,
        texts: Sequence[Sequence[int]],
        outcomes: Sequence[ClassResults | None],
    ) -> None:
        target = sample["target"].view(-1)
        is_wrong = torch.stack([one.is_wrong for one in outcomes if one is not None]).any(dim=0)
        choice.update(sample["id"], differences, lengths, texts, target, is_wrong)

    def tokens(self, task: Any, sample: Any) -> dict[str, list[str]]:
        words = task.source_dictionary
        source = [words[token] for token in sample["net_input"]["src_tokens"][0].tolist()]
        return {"source": source, "queries": [], "targets": []}

    def counted(self, task: Any, numbers: dict[str, int]) -> dict[str, Any]:
        nothing = dict.fromkeys(("source_lang", "target_lang", "target_tokens"))
        return {"kind": self.name, **numbers, **nothing, "labels": label_names(task)}

    def item_text(self, item: Any) -> str:
        return f"{item['net_input.src_tokens'].tolist()}:{item['target'].tolist()}"

    def run(self, model: Any, sample: Any) -> tuple[Tensor, Any]:
        name = getattr(model, "head_in_use", HEAD)
        output: tuple[Tensor, Any] = model(
            **sample["net_input"], features_only=True, classification_head_name=name
        )
        return output

    def targets(self, model: Any, sample: Any) -> tuple[Tensor, Tensor]:
        target = sample["target"].view(-1)
        return target, torch.ones_like(target, dtype=torch.bool)

    def outcome(self, loaded: Any, task: Any) -> ClassResults:
        return ClassResults(loaded.model, task)

    def outcome_entry(
        self, sample: Any, outputs: Sequence[Any], outcomes: Sequence[ClassResults | None]
    ) -> dict[str, Any]:
        if not outcomes:
            return {}
        pairs = zip(outputs, outcomes, strict=True)
        predictions = [one.of_map(sample, output) for output, one in pairs if one is not None]
        return {"label": int(sample["target"].view(-1)[0]), "classified": predictions}
