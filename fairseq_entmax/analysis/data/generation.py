"""What models generate, as a data set to look at: ``analyze --of generated``.

A text is decoded first, and the best hypothesis of each sentence then goes through the model once
more, as its target. A decoder sees nothing behind the word that it is at, so its attention is the
same in both: that of the steps that led to the best hypothesis."""

from __future__ import annotations

from argparse import Namespace
from array import array
from collections.abc import Sequence
from typing import Any

from fairseq import utils
from fairseq.data import data_utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationConfig
from torch import Tensor

from fairseq_entmax.analysis.data import GENERATED, loading
from fairseq_entmax.tasks.summarization import SummarizationConfig

# What a document says of every search; of the other options those that are not fairseq's default
ALWAYS_NAMED = ("beam", "lenpen", "min_len", "max_len_a", "max_len_b", "no_repeat_ngram_size")
# Options of fairseq-generate that analyze and ablate would pass over
OF_GENERATE_ALONE = (
    *("constraints", "replace_unk", "lm_path", "score_reference", "retain_dropout"),
    "results_path",
)
WITHOUT_EFFECT = (*OF_GENERATE_ALONE, "nbest", "print_alignment")


def check_options(args: Namespace) -> None:
    """Refuse options on search that would be passed over, or that no search can go by."""
    is_generated = args.of == GENERATED
    if is_generated:
        refused, remedy = WITHOUT_EFFECT, "leave it out"
    else:  # those of the task for summaries are options of its alone
        search = {**vars(SummarizationConfig()), **vars(GenerationConfig())}
        refused = tuple(name for name in search if name not in vars(TranslationConfig()))
        remedy = "give --of generated, or leave it out"
    loading.refuse(args, refused, remedy)
    if is_generated and args.beam < 1:
        raise ValueError(f"--beam got {args.beam}: give 1 or more")


def search_options(config: Any, task: Any) -> dict[str, Any]:
    """By which search a text is made, as a document says it: name of an option to its value."""
    defaults = vars(GenerationConfig())
    of_search = {
        name: getattr(config, name)
        for name in defaults
        if name in ALWAYS_NAMED or getattr(config, name) != defaults[name]
    }
    known = {*defaults, *vars(TranslationConfig()), "_name"}
    of_task = {name: getattr(task.cfg, name) for name in task.cfg if name not in known}
    simple = bool | int | float | str | None
    plain = {
        name: value if isinstance(value, simple) else str(value)
        for name, value in {**of_search, **of_task}.items()
    }
    return {"task": str(task.cfg.get("_name") or "translation"), **plain}


class GeneratedDataset:
    """A data set whose targets are what one model generates, of the sentences that it was given.

    ``numbers``: of ``tokens``, of ``empty`` sentences, and of those of the ``longest`` length that
    the options allow, most of which were cut off there."""

    def __init__(self, dataset: Any, model: Any, task: Any, config: Any) -> None:
        self._dataset, self._model, self._task = dataset, model, task
        self._config = config.generation
        self._seed: int = config.common.seed
        self._targets: dict[int, Tensor] = {}
        self.tgt_sizes = array("q", [0]) * len(dataset)
        self.numbers = {"tokens": 0, "empty": 0, "longest": 0}
        self._generator = self._search(lambda: task.build_generator([model], self._config))
        self._is_first = True

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {**self._dataset[number], "target": self._targets[number].long()}

    def num_tokens(self, number: int) -> int:
        """The longer side of a sentence, in tokens."""
        return max(int(self._dataset.src_sizes[number]), self.tgt_sizes[number])

    def collater(self, items: Sequence[dict[str, Any]]) -> Any:
        """A batch, as fairseq makes it."""
        return self._dataset.collater(items)

    def generate(self, sample: Any) -> Any:
        """The batch with the best hypothesis of each sentence as its target."""
        if self._is_first:
            # Where hypotheses are sampled, the same ones whatever was generated before
            utils.set_torch_seed(self._seed)
            self._is_first = False
        prefix = None
        if self._config.prefix_size:
            prefix = sample["target"][:, : self._config.prefix_size]
        decoder = self._model.decoder
        decoder.set_beam_size(self._generator.beam_size)
        try:
            hypotheses = self._search(
                lambda: self._task.inference_step(
                    self._generator, [self._model], sample, prefix_tokens=prefix
                )
            )
        finally:
            # Until then cross-attention takes so many rows for one sentence
            decoder.set_beam_size(1)
        limit, best = self._longest(sample), []
        for number, of_one in zip(sample["id"].tolist(), hypotheses, strict=True):
            if not of_one:
                raise ValueError(
                    f"the search finds nothing to say of sentence {number}: the model did not "
                    f"train well, or the options leave no word"
                )
            tokens = of_one[0]["tokens"].cpu()
            best.append(tokens)
            self._targets[number], self.tgt_sizes[number] = tokens.int(), len(tokens)
            self.numbers["tokens"] += len(tokens)
            self.numbers["empty"] += len(tokens) == 1
            self.numbers["longest"] += len(tokens) > limit
        return self._with_targets(sample, best)

    def _longest(self, sample: Any) -> int:
        """How many tokens fairseq lets a hypothesis have, without the end of the sentence."""
        length = sample["net_input"]["src_tokens"].size(1)
        if self._config.match_source_len:
            return int(sample["net_input"]["src_lengths"].max())
        allowed = int(self._config.max_len_a * length + self._config.max_len_b)
        return min(allowed, self._generator.max_len - 1)

    def _with_targets(self, sample: Any, targets: Sequence[Tensor]) -> Any:
        words = self._task.target_dictionary
        net_input = sample["net_input"]

        target, previous = (
            data_utils.collate_tokens(
                targets, words.pad(), words.eos(), move_eos_to_beginning=move_end
            ).to(net_input["src_tokens"].device)
            for move_end in (False, True)
        )
        net_input = {**net_input, "prev_output_tokens": previous}
        tokens = sum(map(len, targets))
        return {**sample, "target": target, "ntokens": tokens, "net_input": net_input}

    def _search(self, call: Any) -> Any:
        try:
            return call()
        except (AssertionError, NotImplementedError, ValueError) as error:
            # fairseq's own on options that do not go together
            raise ValueError(
                f"nothing can be generated by these options: {' '.join(str(error).split()) or 'fairseq does not say why'}"
            ) from error
