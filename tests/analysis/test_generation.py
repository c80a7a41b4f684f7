"""Text that a model generates as a data set: against fairseq's search, step by step."""

from argparse import Namespace

import pytest
import torch
from fairseq.data import LanguagePairDataset, ListDataset
from fairseq.dataclass.configs import GenerationConfig

from fairseq_entmax.analysis.generation import GeneratedDataset, check_options, search_options
from fairseq_entmax.analysis.recorder import AttentionRecorder, record_attention
from fairseq_entmax.analysis.sentences import samples
from tests.pruning.test_surgery import trained
from tests.support import random_sentences, tiny_task

SOURCES = random_sentences([5, 9, 3, 7, 11, 4])
TARGETS = random_sentences([4, 4, 4, 4, 4, 4], seed=1)
DICTIONARY = tiny_task().source_dictionary
MODELS = [
    ("entmax_transformer", {"attn_mapping": "softmax"}),
    ("entmax_transformer", {"attn_mapping": "entmax", "decoder_normalize_before": True}),
    ("entmax_transformer", {"attn_mapping": "fusedmax|entmax15|softmax|sparsemax"}),
    ("entmax_copy_transformer", {"attn_mapping": "entmax15", "share_all_embeddings": True}),
    ("entmax_copy_transformer", {"copy_heads": "1,2", "copy_mapping": "sparsemax"}
     | {"attn_mapping": "softmax", "share_all_embeddings": True}),
]  # fmt: skip


def dataset():
    sizes = [len(one) for one in SOURCES], [len(one) for one in TARGETS]
    return LanguagePairDataset(
        ListDataset(SOURCES, sizes[0]), sizes[0], DICTIONARY,
        ListDataset(TARGETS, sizes[1]), sizes[1], DICTIONARY, shuffle=False,
    )  # fmt: skip


def config(**options):
    generation = GenerationConfig()
    for name, value in {"beam": 3, "max_len_b": 12, **options}.items():
        setattr(generation, name, value)
    return Namespace(generation=generation, common=Namespace(seed=1))


def generated(model, at_once=3, **options):
    data = GeneratedDataset(dataset(), model, tiny_task(), config(**options))
    for sample in samples(dataset(), range(len(SOURCES)), torch.device("cpu"), at_once):
        data.generate(sample)
    return data


@pytest.mark.parametrize(("arch", "options"), MODELS)
def test_attention_on_the_hypothesis_is_that_of_the_steps_that_made_it(arch, options):
    model = trained(arch, **options)
    data = generated(model, at_once=1, beam=1, max_len_b=8)
    generator = tiny_task().build_generator([model], config(beam=1, max_len_b=8).generation)
    for number in range(len(SOURCES)):
        (sample,) = samples(data, [number], torch.device("cpu"))
        whole, _ = record_attention(model, sample)
        source = {key: sample["net_input"][key] for key in ("src_tokens", "src_lengths")}
        with AttentionRecorder(model, keep_calls=True) as recorder, torch.no_grad():
            best = generator.generate([model], {"net_input": source})[0][0]
        assert best["tokens"].tolist() == sample["target"][0].tolist()
        for attention in ("decoder-self", "cross"):
            for layer, weights in whole[attention].items():
                steps = [one for name, n, one in recorder.calls if (name, n) == (attention, layer)]
                assert len(steps) == len(best["tokens"]) == weights.size(2)
                for step, row in enumerate(steps):
                    seen = weights[0, :, step, : row.size(3)]
                    assert torch.allclose(row[0, :, 0], seen, atol=1e-5)


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize(("arch", "options"), MODELS[2:4])
def test_the_best_hypothesis_of_each_sentence_is_its_target(arch, options, at_once):
    model = trained(arch, **options)
    data = generated(model, at_once)
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


def test_a_batch_has_the_hypotheses_in_the_order_of_its_sentences():
    data = GeneratedDataset(dataset(), trained(**MODELS[1][1]), tiny_task(), config())
    (sample,) = samples(dataset(), range(6), torch.device("cpu"), 6)
    made = data.generate(sample)
    again = data.collater([data[number] for number in sample["id"].tolist()])
    assert made["id"].tolist() == again["id"].tolist()
    for name in ("target", "ntokens"):
        assert torch.equal(torch.as_tensor(made[name]), torch.as_tensor(again[name]))
    previous = made["net_input"]["prev_output_tokens"]
    assert torch.equal(previous, again["net_input"]["prev_output_tokens"])
    assert sample["target"].tolist() != made["target"].tolist()


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


def test_sentences_that_are_cut_end_and_are_counted():
    data = generated(trained(**MODELS[0][1]), max_len_b=2, min_len=2)
    assert data.numbers == {"tokens": 18, "empty": 0, "longest": 6}
    for number in range(6):
        assert data[number]["target"][-1] == DICTIONARY.eos()


def test_the_first_tokens_can_be_given():
    data = generated(trained(**MODELS[0][1]), prefix_size=2)
    for number, target in enumerate(TARGETS):
        assert data[number]["target"][:2].tolist() == target[:2].tolist()


def test_sampled_text_follows_the_seed():
    first, again = (generated(trained(**MODELS[0][1]), sampling=True, beam=1) for _ in range(2))
    texts = [[data[number]["target"].tolist() for number in range(6)] for data in (first, again)]
    assert texts[0] == texts[1]


def test_the_model_is_left_able_to_take_whole_targets():
    model = trained(**MODELS[3][1], arch="entmax_copy_transformer")
    (sample,) = samples(dataset(), range(6), torch.device("cpu"), 6)
    before = record_attention(model, sample)[1]
    generated(model)
    assert torch.allclose(record_attention(model, sample)[1], before, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_len": 20}, "nothing can be generated by these options: min_len cannot be larger"),
        ({"diverse_beam_groups": 2}, "by these options: .* divisible by the number of groups"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        generated(trained(**MODELS[0][1]), **options)
    assert "\n" not in str(caught.value)


def test_a_search_that_finds_nothing_names_the_sentence():
    model = trained(**MODELS[0][1])
    data = GeneratedDataset(dataset(), model, tiny_task(), config())
    data._task = Namespace(inference_step=lambda *_, **__: [[], []])
    (sample,) = samples(dataset(), [2, 5], torch.device("cpu"), 2)
    with pytest.raises(ValueError, match="finds nothing to say of sentence 5"):
        data.generate(sample)


def arguments(of, **options):
    from fairseq.dataclass.configs import CommonEvalConfig

    return Namespace(of=of, **{**vars(GenerationConfig()), **vars(CommonEvalConfig()), **options})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (arguments("reference", beam=7), "--beam got 7, which has no part .* the reference: give"),
        (arguments("reference", lenpen=0.5), "--lenpen got 0.5, .*--of generated, or leave it out"),
        (arguments("generated", nbest=2), "--nbest got 2, .* generated text: leave it out"),
        (arguments("generated", replace_unk="x"), "--replace-unk got 'x'"),
        (arguments("generated", beam=0), "--beam got 0: give 1 or more"),
    ],
)
def test_options_that_would_be_passed_over_are_refused(args, message):
    with pytest.raises(ValueError, match=message):
        check_options(args)


def test_options_at_their_defaults_are_no_fault():
    check_options(arguments("reference"))
    check_options(arguments("generated", beam=3, lenpen=0.9))


def test_the_search_is_told_by_what_matters():
    found = search_options(config(lenpen=0.9, temperature=2.0).generation, _task(length="wu"))
    assert found == {
        "task": "my_task",
        "beam": 3,
        "lenpen": 0.9,
        "min_len": 1,
        "max_len_a": 0,
        "max_len_b": 12,
        "no_repeat_ngram_size": 0,
        "temperature": 2.0,
        "length": "wu",
    }


def _task(**own):
    from omegaconf import OmegaConf

    return Namespace(cfg=OmegaConf.create({"_name": "my_task", "data": "x", **own}))
