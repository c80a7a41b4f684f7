"""Toy models with tables of probabilities, most of them exactly zero, and batches for them.

A toy's next word depends on its seed, the source and all previous words. `next_probs` is this table
in plain Python, which both the models and a brute-force search can read.
"""

import functools
import math
import random
from collections.abc import Sequence

import torch
from fairseq.data import Dictionary
from fairseq.models import BaseFairseqModel, FairseqDecoder, FairseqEncoder
from torch import nn

import fairseq_entmax.models  # noqa: F401 - which patches the search
from fairseq_entmax.tasks.summarization import EntmaxSummarizationTask, SummarizationConfig
from tests.support import dictionary_of

EOS, PAD, UNK = 2, 1, 3
WORDS = list(range(4, 10))  # words that toys may produce; the dictionary's other words never occur
NUM_WORDS = 44


@functools.cache
def toy_dictionary() -> Dictionary:
    return dictionary_of(f"w{number}" for number in range(NUM_WORDS - 4))


@functools.cache
def toy_task() -> EntmaxSummarizationTask:
    config = SummarizationConfig(source_lang="a", target_lang="b")
    return EntmaxSummarizationTask(config, toy_dictionary(), toy_dictionary())


@functools.cache
def next_probs(
    seed: int,
    source: tuple[int, ...],
    words: tuple[int, ...],
    longest: int,
    ending: float,
    fewest: int,
) -> dict[int, float]:
    """Nonzero probabilities of the next word.

    After ``longest`` words only the end follows, and before that with a chance of ``ending``. If
    ``fewest`` is 1, the mean of two such models may have ties.
    """
    if len(words) >= longest:
        return {EOS: 1.0}
    # hash() would differ between processes
    draw = random.Random(repr((seed, source, words)))
    support = draw.sample([*WORDS, UNK], draw.choice([fewest, fewest, 2, 2, 3]))
    if draw.random() < ending:
        support[-1] = EOS
    weights = [draw.uniform(0.05, 1.0) for _ in support]
    return {word: weight / sum(weights) for word, weight in zip(support, weights, strict=True)}


class ToyEncoder(FairseqEncoder):
    def forward(self, src_tokens, src_lengths=None, **_):
        return {"src_tokens": [src_tokens]}

    def forward_torchscript(self, net_input):
        return self.forward(net_input["src_tokens"])

    def reorder_encoder_out(self, encoder_out, new_order):
        return {"src_tokens": [encoder_out["src_tokens"][0].index_select(0, new_order)]}


class ToyDecoder(FairseqDecoder):
    def __init__(self, table):
        super().__init__(toy_dictionary())
        self.table = table

    def forward(self, prev_output_tokens, encoder_out=None, **_):
        rows = []
        sources = encoder_out["src_tokens"][0] if encoder_out else [None] * len(prev_output_tokens)
        for tokens, source in zip(prev_output_tokens.tolist(), sources, strict=True):
            words = () if source is None else tuple(source[source != PAD].tolist())
            row = [-math.inf] * NUM_WORDS
            for word, prob in self.table(words, tuple(tokens[1:])).items():
                row[word] = math.log(prob)
            rows.append(row)
        attention = None
        if encoder_out:
            real = sources.ne(PAD).float()
            attention = (real / real.sum(dim=1, keepdim=True))[:, None]
        return torch.tensor(rows)[:, None], {"attn": [attention]}

    def max_positions(self):
        return 100


class Toy(BaseFairseqModel):
    """An encoder-decoder model; with `dense`, no word has probability zero."""

    def __init__(self, seed, longest=99, ending=0.4, dense=False, fewest=1):
        super().__init__()

        def table(source, words):
            return next_probs(seed, source, words, longest, ending, fewest)

        self.table, self.dense = table, dense
        self.encoder, self.decoder = ToyEncoder(toy_dictionary()), ToyDecoder(table)

    def max_decoder_positions(self):
        return 100

    def get_normalized_probs(self, net_output, log_probs, sample=None):
        scores = net_output[0].float()
        if self.dense:
            noise = torch.arange(scores.size(-1)).sin()
            scores = scores.clamp(min=-6.0) + noise
        assert log_probs
        return scores.log_softmax(dim=-1)


class ToyLanguageModel(nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.table = lambda source, words: language_model_probs(seed, words)
        self.decoder = ToyDecoder(self.table)

    def forward(self, tokens):
        return self.decoder(tokens)

    def get_normalized_probs(self, net_output, log_probs, sample=None):
        return net_output[0].log_softmax(dim=-1)


@functools.cache
def language_model_probs(seed: int, words: tuple[int, ...]) -> dict[int, float]:
    draw = random.Random(repr((seed, words)))
    support = [EOS, *draw.sample([*WORDS, UNK], 4)]
    weights = [draw.uniform(0.1, 1.0) for _ in support]
    return {word: weight / sum(weights) for word, weight in zip(support, weights, strict=True)}


def toy_batch(sources: Sequence[Sequence[int]], ids: Sequence[int] | None = None) -> dict:
    """A batch of sources, to which ends are added, padded on the left."""
    longest = max(map(len, sources)) + 1
    rows = [[PAD] * (longest - len(source) - 1) + [*source, EOS] for source in sources]
    return {
        "id": torch.tensor(ids or list(range(len(sources)))),
        "net_input": {
            "src_tokens": torch.tensor(rows),
            "src_lengths": torch.tensor([len(source) + 1 for source in sources]),
        },
    }
