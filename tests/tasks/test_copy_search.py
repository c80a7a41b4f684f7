"""Searches with models that copy, against a plain decoder whose mixture is written down too."""

import functools
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch

from fairseq_entmax.tasks.summarization import EntmaxSummarizationTask, SummarizationConfig
from tests.support import MARKERS, batch, build_model, marked_task, spread_scores
from tests.tasks.reference_decoder import Search, decode
from tests.tasks.test_search import assert_same

MAX_LEN = 10


@functools.cache
def task():
    dictionary = marked_task().source_dictionary
    config = SummarizationConfig(source_lang="a", target_lang="b")
    return EntmaxSummarizationTask(config, dictionary, dictionary)


@functools.cache
def model(mapping="softmax", seed=1, copy_heads="0"):
    """A tiny model that copies more than it generates."""
    options = {"attn_mapping": mapping, "copy_heads": copy_heads}
    model = spread_scores(
        build_model(
            "entmax_copy_transformer",
            seed=seed,
            task=marked_task(),
            source_position_markers=MARKERS,
            **options,
        ),
        6.0,
    ).double()
    with torch.no_grad():
        model.decoder.copy_switch.bias.fill_(-1.0)
        model.decoder.output_projection.weight.mul_(4)
    return model


def plain(model):
    """The same model, with its mixture made word by word from what it is a mixture of."""

    def decoder(words, encoder_out):
        logits, extra = _unmixed(model, words, encoder_out)
        parts = extra["copy"]
        g = torch.sigmoid(parts.switch)
        probs = torch.zeros(*logits.shape[:2], len(marked_task().target_dictionary)).double()
        probs[..., : logits.size(-1)] = g[..., None] * logits.softmax(-1)
        for position, word in enumerate(parts.source[0].tolist()):
            probs[..., word] += (1 - g) * parts.weights[..., position]
        return probs.log(), {"attn": [parts.weights]}

    return SimpleNamespace(encoder=model.encoder, decoder=decoder)


def _unmixed(model, words, encoder_out):
    with model.decoder.unmixed():
        return model.decoder(words, encoder_out=encoder_out)


def sample():
    made = batch([9, 7, 4], [6, 8, 5], left_pad_source=True, left_pad_target=False)
    first = len(marked_task().source_dictionary) - MARKERS
    made["net_input"]["src_tokens"][0, 2] = first + 1
    made["net_input"]["src_tokens"][0, 5] = first + 1
    made["net_input"]["src_tokens"][2, -4:-1] = torch.tensor([first, first + 2, first])
    return made


def search_with_fairseq(models, prefix=0, **options):
    generator = task().build_generator(models, Namespace(max_len_b=MAX_LEN, **options))
    made = sample()
    forced = made["target"][:, :prefix] if prefix else None
    found = task().inference_step(generator, models, made, prefix_tokens=forced)
    nbest = options.get("nbest", 1)
    return [
        [(hypothesis["tokens"].tolist(), hypothesis["score"].item()) for hypothesis in best[:nbest]]
        for best in found
    ]


def search_plainly(models, prefix=0, **options):
    dictionary, made, found = marked_task().target_dictionary, sample(), []
    plain_models = [plain(model) for model in models]
    for source, target in zip(made["net_input"]["src_tokens"], made["target"], strict=True):
        search = Search(max_len=MAX_LEN, prefix=target[:prefix].tolist(), **options)
        words = source[source.ne(dictionary.pad())]
        found.append(
            [
                (hypothesis.words, hypothesis.score)
                for hypothesis in decode(plain_models, words, dictionary, search)
            ]
        )
    return found


@pytest.mark.parametrize(
    ("mapping", "options"),
    [
        ("entmax", {"beam": 1, "nbest": 1}),
        ("fusedmax", {"beam": 2, "nbest": 2}),
        ("softmax", {"temperature": 0.5}),
        ("sparsemax", {"prefix": 3}),
        ("softmax", {"length_penalty": "wu", "lenpen": 0.9, "coverage_penalty": 5.0}),
        (
            "sparsemax",
            {"no_repeat_ngram_size": 2, "coverage_penalty": 1.0, "temperature": 1.5, "min_len": 4},
        ),
    ],
)
def test_a_search_finds_what_a_plain_decoder_finds(mapping, options):
    models, options = [model(mapping)], {"beam": 4, "nbest": 4, **options}
    assert_same(search_with_fairseq(models, **options), search_plainly(models, **options))


def test_an_ensemble_of_two_finds_what_a_plain_decoder_finds():
    models = [model("sparsemax"), model("softmax", seed=2, copy_heads="1,2")]
    options = {"beam": 3, "nbest": 3, "temperature": 1.6, "coverage_penalty": 1.0}
    assert_same(search_with_fairseq(models, **options), search_plainly(models, **options))


def test_markers_are_copied():
    first = len(marked_task().source_dictionary) - MARKERS
    found = search_with_fairseq([model("sparsemax")], beam=2)
    said = {word for best in found for words, _ in best for word in words if word >= first}
    assert said
    assert said <= {first, first + 1, first + 2}


@pytest.mark.parametrize("mapping", ["softmax", "sparsemax"])
def test_sampling_says_only_what_can_be_said(mapping):
    torch.manual_seed(0)
    first = len(marked_task().source_dictionary) - MARKERS
    sources = sample()["net_input"]["src_tokens"]
    for _ in range(3):
        found = search_with_fairseq([model(mapping)], beam=4, nbest=4, sampling=True)
        for source, best in zip(sources.tolist(), found, strict=True):
            markers = {word for words, _ in best for word in words if word >= first}
            assert markers <= set(source)
