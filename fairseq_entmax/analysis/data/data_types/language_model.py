"""A text alone, which language models predict token by token."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Iterator
from typing import Any, ClassVar

from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import Tensor

from fairseq_entmax.analysis.data.data_types.base import TextAlone
from fairseq_entmax.attentions import DECODER_SELF

# How many tokens of a sample a map shows. A decoder does not see later tokens, so the weights are
# the same as in a map of the whole sample
MAP_TOKENS = 64


class LanguageModel(TextAlone):
    """A text cut into samples, for models that are a decoder alone."""

    name = "text"
    tasks = ("language_modeling",)
    models = "language models"
    data = "a text alone, for language models"
    attentions: ClassVar = frozenset({DECODER_SELF})
    # They need a source, or the end of a sentence, which a query has not read yet
    left_out: ClassVar = frozenset(
        {"copy_agreement", "relative_position", "final_punctuation", "question_word", "rare_word"}
    )
    no_parses = "parses are of source texts, and language models have no source"
    task_class = LanguageModelingTask
    # They decide how a text is cut into samples
    options = (
        *("sample_break_mode", "tokens_per_sample", "output_dictionary_size", "add_bos_token"),
        *("max_target_positions", "shorten_method", "shorten_data_split_list"),
    )
    stack = "decoder"
    not_counted = ("source_tokens", "interrogative_sentences", "declarative_sentences")

    def complete(self, args: Namespace, named: Collection[str]) -> None:
        super().complete(args, named)
        if args.self_target or args.past_target:
            raise ValueError(
                "--self-target and --past-target are for models that read in both directions: leave them out"
            )

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
        samples = {"break_mode": str(task.args.sample_break_mode or "none")}
        samples["tokens"] = task.args.tokens_per_sample
        return {**super().counted(task, numbers), "samples": samples}

    def targets(self, model: Any, sample: Any) -> tuple[Tensor, Tensor]:
        target: Tensor = sample["target"]
        words = model.decoder.dictionary
        # If a text begins with <s>, so do its targets. It is not to be predicted, and
        # fairseq-eval-lm leaves it out
        return target, (target != words.pad()) & (target != words.bos())

    def alone(self, model: Any, sample: Any) -> Iterator[tuple[dict[str, Tensor], int, int]]:
        for row in sample["net_input"]["src_tokens"]:
            text = row[row != model.decoder.padding_idx][None]
            yield {"src_tokens": text}, 0, text.size(1)
