"""A loaded model, and the user's own sentences as its data."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from fairseq import data as fairseq_data
from torch import Tensor

from fairseq_entmax.analysis.data import GENERATED, REFERENCE, data_types, loading
from fairseq_entmax.analysis.data.generation import GeneratedDataset, check_options, search_options
from fairseq_entmax.analysis.data.samples import on_device
from fairseq_entmax.analysis.importance.propagation import restored
from fairseq_entmax.analysis.looks import USAGE
from fairseq_entmax.analysis.looks.segmentation import Segmentation, built
from fairseq_entmax.analysis.looks.sentence import Item
from fairseq_entmax.analysis.models.loaded import LoadedModel


def fairseq_parser() -> Any:
    """A parser of fairseq's options for data, subwords, search and devices."""
    parser = loading.data_parser("")
    parser.prog, parser.usage = "fairseq-entmax look", USAGE
    parser.allow_abbrev = False
    parser.set_defaults(of=REFERENCE)
    return parser


class Session:
    """A model and what its sentences need; a ``hub``'s own BPE and tokeniser segment the texts."""

    def __init__(
        self, args: Namespace, task: Any, loaded: LoadedModel, lower: bool, hub: Any = None
    ) -> None:
        self.args, self.task, self.loaded = args, task, loaded
        self.data_type = data_types.type_of_task(task)
        trained = self.data_type.options_of(task)
        bpe = getattr(hub, "bpe", None) or built(args, "bpe")
        self.sides, self.tokenizer = [], None
        for side in ("source", "target") if self.data_type.has_search else ("source",):
            language = getattr(trained, f"{side}_lang", None)
            # The Moses tokeniser goes by ``source_lang``
            side_args = Namespace(**{**vars(args), "source_lang": language})
            self.tokenizer = getattr(hub, "tokenizer", None) or built(side_args, "tokenizer")
            cut = (getattr(task, f"{side}_dictionary"), self.tokenizer, bpe, str(trained.data))
            self.sides.append(Segmentation(*cut, language, lower))
        self.device = next(loaded.model.parameters()).device

    def dataset(self, items: Sequence[Item]) -> Any:
        """Make sentences a fairseq data set, as if they had been preprocessed."""
        source, target = self.task.source_dictionary, self.task.target_dictionary
        sources = [item.source for item in items]
        if isinstance(self.data_type, data_types.EncoderText):
            return self.data_type.typed_texts(self.task, sources)
        sizes = numpy.array([len(one) for one in sources])
        if not self.data_type.has_search:  # a language model: each text is a sample
            marks = None, source.pad(), source.eos()
            tokens = fairseq_data.ListDataset(sources, sizes), sizes, *marks
            how = {"break_mode": "eos", "include_targets": True}
            blocks = fairseq_data.TokenBlockDataset(*tokens, **how)
            how = {"targets": self.task.targets, "add_bos_token": self.task.args.add_bos_token}
            return fairseq_data.MonolingualDataset(blocks, blocks.sizes, source, target, **how)
        targets = [item.target for item in items if item.target is not None]
        target_sizes = numpy.array([len(one) for one in targets])
        return fairseq_data.LanguagePairDataset(
            *(sources, sizes, source, targets, target_sizes, target),
            left_pad_source=self.task.cfg.left_pad_source,
            left_pad_target=self.task.cfg.left_pad_target,
            shuffle=False,
        )

    def search(self) -> dict[str, Any]:
        """The search options, as the document has them."""
        return search_options(loading.configuration(self.args).generation, self.task)

    def sample(self, dataset: Any) -> Any:
        return on_device(dataset.collater([dataset[0]]), self.device)

    def generated(self, source: Tensor) -> tuple[Tensor, dict[str, int]]:
        """Generate from a text: the best hypothesis, ``(tokens,)``, and its counts."""
        self.args.of = GENERATED
        check_options(self.args)
        loading.refuse(self.args, ("prefix_size",), "leave it out")
        end = torch.tensor([self.task.target_dictionary.eos()])
        dataset = self.dataset([Item(source, end)])
        config = loading.configuration(self.args)
        generated = GeneratedDataset(dataset, self.loaded.model, self.task, config)
        # Generation sets a seed; without the fork, a notebook would keep it
        with torch.no_grad(), torch.random.fork_rng():
            sample = generated.generate(self.sample(dataset))
        if generated.numbers["empty"]:
            raise ValueError("the model generated an empty translation: give --translation")
        return sample["target"][0].cpu(), dict(generated.numbers)

    def check_length(self, tokens: Tensor, side: int) -> None:
        most = self.loaded.model.max_positions()
        most = most[side] if isinstance(most, tuple) else most
        if len(tokens) > most:
            raise ValueError(
                f"a text has {len(tokens)} tokens, but the model takes at most {most}: shorten it"
            )

    @contextmanager
    def evaluated(self) -> Iterator[None]:
        """Hold the model in evaluation mode, which ``from_pretrained`` does not set."""
        with restored(self.loaded.model.modules(), "training"):
            self.loaded.model.eval()
            yield
