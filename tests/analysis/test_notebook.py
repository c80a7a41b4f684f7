"""The measures on a dictionary of weights."""

import pytest
import torch

from fairseq_entmax.analysis import measure, record_attention
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
            assert given[name][layer]["diversity"] == one.diversity()
            for head in range(4):
                assert given[name][layer]["heads"][head] == {"head": head, **one.head(head)}
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


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ({}, "there is no attention to measure"),
        ({"self": {0: torch.ones(1, 1, 2, 2)}}, "'self' is no attention"),
        ({"cross": {0: torch.ones(1, 1, 2, 3), 1: torch.ones(1, 1, 2, 4)}}, "cross, layer 1"),
    ],
)
def test_what_does_not_fit_is_refused(attention, message):
    with pytest.raises(ValueError, match=message):
        measure(attention)


def test_a_sample_needs_its_task():
    with pytest.raises(ValueError, match="a sample and its task"):
        measure({}, sample=batch([2], [2]))
