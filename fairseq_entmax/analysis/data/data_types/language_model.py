"""A text alone: what language models read, and predict token by token."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Collection, Iterator
from typing import Any, ClassVar

from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import Tensor

from fairseq_entmax import data_bin
from fairseq_entmax.analysis.data.annotations.annotated import Annotations
from fairseq_entmax.analysis.data.batch import TextTables
from fairseq_entmax.analysis.data.data_types.base import DataType, trained_options
from fairseq_entmax.analysis.data.data_types.seq2seq import check_vocabulary
from fairseq_entmax.attentions import DECODER_SELF

# What the samples of a text are; those of the checkpoint, where the command does not say
OPTIONS = (
    *("sample_break_mode", "tokens_per_sample", "output_dictionary_size", "add_bos_token"),
    *("max_target_positions", "shorten_method", "shorten_data_split_list"),
)
# Tokens of a sample that its map is of. A decoder sees nothing behind a token, so the map of its
# beginning is the beginning of its map
MAP_TOKENS = 64


class LanguageModel(DataType):
    """A text in samples: a decoder alone; the text is source and target."""

    name = "text"
    tasks = ("language_modeling",)
    models = "language models"
    data = "a text alone, for language models"
    attentions: ClassVar = frozenset({DECODER_SELF})
    # They are about a source, or about the end of a sentence, which is not yet read
    left_out: ClassVar = frozenset(
        {"copy_agreement", "relative_position", "final_punctuation", "question_word"}
    )

    def is_in(self, folder: str) -> bool:
        return os.path.isfile(os.path.join(folder, "dict.txt"))

    def has_task(self, task: Any) -> bool:
        return isinstance(task, LanguageModelingTask)

    def options_of(self, task: Any) -> Any:
        return task.args

    def complete(self, args: Namespace, named: Collection[str]) -> None:
        missing = [name for name in OPTIONS if name not in named]
        vars(args).update(trained_options(args.path.split(os.pathsep)[0], missing))

    def check_options(self, args: Namespace) -> None:
        super().check_options(args)
        if args.conllu is not None:
            raise ValueError(
                f"--conllu got {args.conllu!r}: parses are of the source of a pair of texts, and "
                f"--task {args.task} has none: leave it out"
            )

    def check_dictionaries(self, args: Namespace) -> None:
        remedy = "give data that fairseq-preprocess --only-source wrote"
        data_bin.check_dictionary(os.path.join(args.data, "dict.txt"), remedy)

    def setup_task(self, args: Namespace, config: Any) -> Any:
        if args.self_target or args.past_target:
            raise ValueError(
                "--self-target and --past-target are for models that read in both directions: "
                "leave them out"
            )
        return super().setup_task(args, config)

    def check_fit(self, state: dict[str, Any], path: str, task: Any, markers: int) -> None:
        check_vocabulary(state, path, "decoder", task.source_dictionary)

    def tables(self, task: Any, device: Any, annotations: Annotations | None = None) -> TextTables:
        return TextTables(task.source_dictionary, device, {task.source_dictionary.bos()})

    def for_map(self, sample: Any) -> Any:
        net_input = sample["net_input"]
        begun = {
            "src_tokens": net_input["src_tokens"][:, :MAP_TOKENS],
            "src_lengths": net_input["src_lengths"].clamp(max=MAP_TOKENS),
        }
        target = sample["target"][:, :MAP_TOKENS]
        return {**sample, "net_input": {**net_input, **begun}, "target": target}

    def length_shown(self, lengths: Tensor) -> Tensor:
        return lengths.clamp(max=MAP_TOKENS)

    def tokens(self, task: Any, sample: Any) -> dict[str, list[str]]:
        source, target = task.source_dictionary, task.target_dictionary
        return {
            "source": [],
            "queries": [source[token] for token in sample["net_input"]["src_tokens"][0].tolist()],
            "targets": [target[token] for token in sample["target"][0].tolist()],
        }

    def counted(self, task: Any, numbers: dict[str, int]) -> dict[str, Any]:
        nothing = ("source_tokens", "interrogative_sentences", "declarative_sentences")
        samples = {"break_mode": str(task.args.sample_break_mode or "none")}
        samples["tokens"] = task.args.tokens_per_sample
        return {
            "kind": self.name,
            **dict.fromkeys(("source_lang", "target_lang")),
            **numbers,
            **dict.fromkeys(nothing),
            "samples": samples,
        }

    def targets(self, model: Any, sample: Any) -> tuple[Tensor, Tensor]:
        target: Tensor = sample["target"]
        words = model.decoder.dictionary
        # A text that begins with <s> begins its targets with it, too: nobody is to predict that,
        # and fairseq-eval-lm leaves it out
        return target, (target != words.pad()) & (target != words.bos())

    def alone(self, model: Any, sample: Any) -> Iterator[tuple[dict[str, Tensor], int, int]]:
        for row in sample["net_input"]["src_tokens"]:
            text = row[row != model.decoder.padding_idx][None]
            yield {"src_tokens": text}, 0, text.size(1)
