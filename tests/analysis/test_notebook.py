"""The measures on a dictionary of weights."""

import math
from argparse import Namespace

import pytest
import torch

from fairseq_entmax.analysis import Annotations, AttentionRecorder, measure, record_attention
from fairseq_entmax.analysis.collect import Tables
from fairseq_entmax.analysis.statistics import ModelStatistics
from tests.support import batch, build_model, spread_scores, tiny_task


def test_with_a_sample_all_measures_are_those_of_a_data_set():
    model = spread_scores(build_model(attn_mapping="entmax15"))
    sample = batch([7, 5, 2], [6, 3, 4])
    attention, _ = record_attention(model, sample)
    given = measure(attention, sample, tiny_task())
    statistics = ModelStatistics()
    statistics.update(attention, Tables(tiny_task(), torch.device("cpu")).batch(sample))
    for name, layers in statistics.layers.items():
        for layer, one in layers.items():
            assert given[name][layer] == one.results()
            assert [head["head"] for head in given[name][layer]["heads"]] == [0, 1, 2, 3]
    assert given["encoder-self"][0]["heads"][0]["subword_merging"] is not None


def test_without_a_sample_the_lengths_say_what_is_padding():
    model = spread_scores(build_model(attn_mapping="entmax15"))
    sample = batch([7, 5, 2], [6, 3, 4])
    attention, _ = record_attention(model, sample)
    source, target = torch.tensor([7, 5, 2]), torch.tensor([6, 3, 4])
    given = measure(attention, source_lengths=source, target_lengths=target)
    expected = measure(attention, sample, tiny_task())
    for name, layers in expected.items():
        for layer, one in layers.items():
            assert given[name][layer]["diversity"] == pytest.approx(one["diversity"])
            for head, numbers in enumerate(one["heads"]):
                found = given[name][layer]["heads"][head]
                for key in ("density", "entropy", "confidence", "density_histogram", "offsets"):
                    assert found[key] == numbers[key], (name, key)
                assert found["rare_word"] is None


def test_one_attention_alone_can_be_measured():
    weights = torch.eye(5).expand(2, 3, 5, 5)
    head = measure({"encoder-self": {0: weights}}, has_end=False)["encoder-self"][0]["heads"][2]
    assert head["positional"] == {"offset": 0, "share": 1.0, "confidence": 1.0}
    assert head["density"] == pytest.approx(0.2)
    assert head["confidence"] == 1


def test_the_end_of_a_sentence_does_not_count_as_confidence():
    weights = torch.zeros(1, 1, 4, 4)
    weights[..., -1] = 0.7
    weights[..., 0] = 0.3
    head = measure({"encoder-self": {0: weights}})["encoder-self"][0]["heads"][0]
    assert head["confidence"] == pytest.approx(0.3)


def eye(*shape):
    return torch.eye(*shape)[None, None]


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ({}, "there is no attention to measure"),
        ({"cross": {}}, "there is no attention to measure"),
        ({"self": {0: eye(2)}}, "'self' is no attention"),
        ({"cross": {0: eye(2, 3), 1: eye(2, 4)}}, "cross, layer 1, have the shape"),
        ({"cross": {0: torch.eye(3)}}, r"have the shape \(3, 3\)"),
        ({"cross": {0: eye(3).long()}}, "are torch.int64"),
        ({"cross": {0: eye(3) * 1.75}}, "are no probabilities"),
        ({"cross": {0: eye(3) * torch.nan}}, "are no probabilities"),
        ({"cross": {0: torch.tensor([[[[1.5, -0.5]]]])}}, "are no probabilities"),
    ],
)
def test_what_does_not_fit_is_refused(attention, message):
    with pytest.raises(ValueError, match=message):
        measure(attention)


@pytest.mark.parametrize("lengths", [[4, 3, 1], [4, 0], [5, 6], torch.tensor([1])])
def test_lengths_that_do_not_fit_are_refused(lengths):
    weights = {"encoder-self": {0: torch.eye(5).expand(2, 1, 5, 5)}}
    with pytest.raises(ValueError, match=r"source_lengths got .* number from 1 to 5 for each of"):
        measure(weights, source_lengths=lengths)


def test_lengths_may_be_a_list_and_weights_in_half_precision():
    weights = torch.full((1, 1, 4, 4), 0.25, dtype=torch.float16)
    head = measure({"encoder-self": {0: weights}}, source_lengths=[4])["encoder-self"][0]["heads"][
        0
    ]
    assert head["entropy"] == pytest.approx(math.log(4), rel=1e-6)


def test_weights_on_padding_are_refused():
    attention, _ = record_attention(build_model(), batch([7, 5, 2], [6, 3, 4]))
    lengths = {"source_lengths": [7, 5, 2], "target_lengths": [6, 3, 4]}
    measure(attention, **lengths)
    with pytest.raises(ValueError, match="are on padding in sentence 0: give the sample"):
        measure(attention, **{**lengths, "source_lengths": [3, 5, 2]})
    with pytest.raises(ValueError, match="are on padding in sentence 1"):
        measure(attention, batch([7, 4, 2], [6, 3, 4]), tiny_task())


def test_with_their_lengths_weights_of_softmax_are_dense():
    attention, _ = record_attention(
        build_model(attn_mapping="softmax"), batch([7, 5, 2], [6, 3, 4])
    )
    found = measure(attention, source_lengths=[7, 5, 2], target_lengths=[6, 3, 4])
    for layers in found.values():
        assert [head["density"] for head in layers[0]["heads"]] == pytest.approx([1.0] * 4)


def test_sparse_heads_that_leave_out_an_edge_have_the_length_that_is_given():
    weights = torch.zeros(2, 2, 4, 4)
    weights[0, :, :, :2] = 0.5  # leaves out the last two of four
    weights[1] = torch.eye(4)
    found = measure({"encoder-self": {0: weights}}, source_lengths=[4, 4])
    assert found["encoder-self"][0]["heads"][0]["density"] == pytest.approx((2 / 4 + 1 / 4) / 2)


def test_the_density_of_a_decoder_is_of_the_keys_that_it_sees():
    weights = torch.ones(1, 1, 5, 5).tril() / torch.arange(1, 6)[:, None]
    (head,) = measure({"decoder-self": {0: weights}})["decoder-self"][0]["heads"]
    assert head["density"] == 1


def test_a_decoder_that_sees_what_is_behind_is_refused():
    weights = torch.full((1, 1, 3, 3), 1 / 3)
    with pytest.raises(ValueError, match="or on tokens that a decoder has not read, in sentence 0"):
        measure({"decoder-self": {0: weights}})


def test_the_last_step_of_decoding_is_no_sentence():
    model = build_model()
    generator = tiny_task().build_generator([model], Namespace(beam=1, max_len_a=0, max_len_b=5))
    sample = batch([5], [4])
    with AttentionRecorder(model) as recorder:
        generator.generate([model], sample)
        with pytest.raises(ValueError, match=r"last step of incremental decoding.*look\(model"):
            measure(recorder.attention)
        model(**sample["net_input"])
    assert measure(recorder.attention, sample, tiny_task())["cross"]


def test_a_sample_needs_its_task():
    with pytest.raises(ValueError, match="a sample and its task"):
        measure({}, sample=batch([2], [2]))


def test_annotations_need_their_sample(tmp_path):
    (tmp_path / "a.conllu").write_text("1\tw0\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n")
    annotations = Annotations(str(tmp_path / "a.conllu"), tiny_task().source_dictionary)
    with pytest.raises(ValueError, match="annotations need the sample"):
        measure({"cross": {0: eye(3)}}, annotations=annotations)


def test_annotations_add_what_they_say_of_heads(tmp_path):
    sample = batch([4, 3], [2, 2])
    symbols = tiny_task().source_dictionary.symbols
    blocks = []
    for number in sample["id"].sort().values.tolist():
        row = sample["id"].tolist().index(number)
        tokens = sample["net_input"]["src_tokens"][row].tolist()
        words = [symbols[t] for t in tokens if t >= tiny_task().source_dictionary.nspecial]
        lines = [
            f"{n}\t{word}\t_\tNOUN\t_\t_\t{n - 1}\t{'obj' if n > 1 else 'root'}\t_\tNE=O\n"
            for n, word in enumerate(words, start=1)
        ]
        blocks.append("".join(lines) + "\n")
    (tmp_path / "a.conllu").write_text("".join(blocks))
    annotations = Annotations(str(tmp_path / "a.conllu"), tiny_task().source_dictionary)
    model = build_model(attn_mapping="softmax")
    attention, _ = record_attention(model, sample)
    # Every token looks at the one before it, which is its head, and the first at itself
    before = torch.eye(4).roll(-1, 1).repeat(2, 4, 1, 1)
    starts = sample["net_input"]["src_tokens"].ne(tiny_task().source_dictionary.pad())
    for weights, start in zip(before, starts.int().argmax(dim=1).tolist(), strict=True):
        weights[:, start] = torch.eye(4)[start]
    attention["encoder-self"][0] = before
    found = measure(attention, sample, tiny_task(), annotations=annotations)
    head = found["encoder-self"][0]["heads"][1]
    assert head["dependencies"] == {"obj": {"to_head": 1.0, "to_dependent": 0.0}}
    assert head["pos_kl"] == pytest.approx(0)
    assert found["decoder-self"][0]["heads"][0]["dependencies"] is None
