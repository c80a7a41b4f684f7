"""Generated text as a data set, compared with fairseq's search step by step."""

from argparse import Namespace
from contextlib import ExitStack
from functools import partial

import pytest
import torch
from fairseq.dataclass.configs import CommonEvalConfig, GenerationConfig

from fairseq_entmax.analysis import measure
from fairseq_entmax.analysis.data.generation import GeneratedDataset, check_options
from fairseq_entmax.analysis.data.samples import samples
from fairseq_entmax.analysis.models.recorder import record_attention
from fairseq_entmax.attention import attention_modules
from tests.pruning.test_surgery import trained
from tests.support import pair_dataset, random_sentences, tiny_task

SOURCES = random_sentences([5, 9, 3, 7, 11, 4])
TARGETS = random_sentences([4, 4, 4, 4, 4, 4], seed=1)
DICTIONARY = tiny_task().source_dictionary
MODELS = [
    ("entmax_transformer", {"attn_mapping": "softmax", "decoder_normalize_before": True}),
    ("entmax_transformer", {"attn_mapping": "fusedmax|entmax15|softmax|sparsemax"}),
    ("entmax_copy_transformer", {"attn_mapping": "entmax15", "share_all_embeddings": True}),
    ("entmax_copy_transformer", {"copy_heads": "1,2", "copy_mapping": "sparsemax"}
     | {"attn_mapping": "softmax", "share_all_embeddings": True}),
]  # fmt: skip


def dataset():
    return pair_dataset(SOURCES, TARGETS)


def config(**options):
    generation = GenerationConfig()
    for name, value in {"beam": 3, "max_len_b": 12, **options}.items():
        setattr(generation, name, value)
    return Namespace(generation=generation, common=Namespace(seed=1))


def _note(calls, place, weights):
    calls.append((*place, weights))


def generated(model, at_once=3, drawn=0, **options):
    data = GeneratedDataset(dataset(), model, tiny_task(), config(**options))
    for sample in samples(dataset(), range(len(SOURCES)), torch.device("cpu"), at_once):
        data.generate(sample)
        torch.rand(drawn)  # as another model draws that takes turns
    return data


@pytest.mark.parametrize(("arch", "options"), MODELS)
def test_attention_on_the_hypothesis_matches_the_steps_of_the_search(arch, options):
    model = trained(arch, **options)
    data = generated(model, at_once=1, beam=1, max_len_b=8)
    generator = tiny_task().build_generator([model], config(beam=1, max_len_b=8).generation)
    for number in range(len(SOURCES)):
        (sample,) = samples(data, [number], torch.device("cpu"))
        whole, _ = record_attention(model, sample)
        source = {key: sample["net_input"][key] for key in ("src_tokens", "src_lengths")}
        calls = []
        with ExitStack() as stack, torch.no_grad():
            for *place, module in attention_modules(model):
                stack.enter_context(module.observed(partial(_note, calls, place)))
            best = generator.generate([model], {"net_input": source})[0][0]
        assert best["tokens"].tolist() == sample["target"][0].tolist()
        for attention in ("decoder-self", "cross"):
            for layer, weights in whole[attention].items():
                steps = [one for name, n, one in calls if (name, n) == (attention, layer)]
                assert len(steps) == len(best["tokens"]) == weights.size(2)
                for step, row in enumerate(steps):
                    seen = weights[0, :, step, : row.size(3)]
                    assert torch.allclose(row[0, :, 0], seen, atol=1e-5)


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize(("arch", "options"), MODELS[1:3])
def test_the_best_hypothesis_becomes_the_target(arch, options, at_once):
    model = trained(arch, **options)
    (sample,) = samples(dataset(), range(6), torch.device("cpu"), 6)
    before = record_attention(model, sample)[1]
    data = generated(model, at_once)
    # The model can still take whole targets
    assert torch.allclose(record_attention(model, sample)[1], before, atol=1e-6, equal_nan=True)
    generator = tiny_task().build_generator([model], config().generation)
    lengths = []
    for number, source in enumerate(SOURCES):
        net_input = {"src_tokens": source[None], "src_lengths": torch.tensor([len(source)])}
        best = generator.generate([model], {"net_input": net_input})[0][0]["tokens"]
        assert data[number]["target"].tolist() == best.tolist()
        assert data[number]["source"].tolist() == source.tolist()
        assert data.tgt_sizes[number] == len(best)
        lengths.append(len(best))
    assert data.numbers["tokens"] == sum(lengths)
    assert data.numbers["longest"] == sum(length == 13 for length in lengths)


def test_sentences_that_end_at_once_have_one_query_and_are_counted():
    model = trained(**MODELS[0][1])
    with torch.no_grad():
        bias = torch.zeros(len(DICTIONARY))
        bias[DICTIONARY.eos()] = 1e4
    model.decoder.output_projection.bias = torch.nn.Parameter(bias)
    data = generated(model, min_len=0)
    assert data.numbers == {"tokens": 6, "empty": 6, "longest": 0}
    (sample,) = samples(data, [0, 1], torch.device("cpu"), 2)
    assert sample["target"].tolist() == [[DICTIONARY.eos()]] * 2
    attention, _ = record_attention(model, sample)
    assert attention["cross"][0].shape[2] == 1
    (head, *_) = measure(attention, sample, tiny_task())["cross"][0]["heads"]
    assert (head["relative_position"], head["copy_agreement"]) == (0.0, None)


def test_sampled_text_follows_the_seed_after_the_forced_prefix():
    options = {"sampling": True, "beam": 1, "prefix_size": 2}
    first, again = (generated(trained(**MODELS[0][1]), 1, drawn, **options) for drawn in (0, 5))
    for number, target in enumerate(TARGETS):
        text = first[number]["target"].tolist()
        assert text == again[number]["target"].tolist()
        assert text[:2] == target[:2].tolist()


@pytest.mark.parametrize(
    ("of", "options", "message"),
    [
        ("reference", {"beam": 7}, "--beam got 7, which has no effect here: give --of"),
        ("reference", {"lenpen": 0.5}, "--lenpen got 0.5, .*--of generated, or leave it out"),
        ("generated", {"nbest": 2}, "--nbest got 2, .*: leave it out"),
        ("generated", {"replace_unk": "x"}, "--replace-unk got 'x'"),
        ("generated", {"beam": 0}, "--beam got 0: give 1 or more"),
    ],
)
def test_options_without_effect_and_invalid_combinations_are_refused(of, options, message):
    defaults = {**vars(GenerationConfig()), **vars(CommonEvalConfig())}
    with pytest.raises(ValueError, match=message):
        check_options(Namespace(of=of, **{**defaults, **options}))
    model = trained(**MODELS[0][1])
    with pytest.raises(ValueError, match="cannot generate with these options: min_len cannot be"):
        generated(model, min_len=20)
    torch.nn.init.constant_(model.decoder.layers[0].fc1.bias, torch.nan)
    with pytest.raises(ValueError, match="the search finds no hypothesis: the model's training"):
        generated(model)
