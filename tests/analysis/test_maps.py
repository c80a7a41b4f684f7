"""Attention maps: which sentences, and how weights are written."""

import random

import pytest
import torch

from fairseq_entmax.analysis.maps import (
    MostDifferent,
    decode_weights,
    encode_weights,
    sentence_maps,
)


def entry(weights):
    return {"shape": list(weights.shape), "weights": encode_weights(weights)}


def test_zeros_stay_zeros_and_small_weights_stay_above():
    weights = torch.tensor([[[0.0, 1e-30, 6e-8, 1e-4], [0.25, 0.75, 0.0, 1.0]]])
    decoded = decode_weights(entry(weights))
    assert torch.equal(decoded == 0, weights == 0)
    assert decoded[0, 1].tolist() == [0.25, 0.75, 0.0, 1.0]
    assert 0 < decoded[0, 0, 1] < 1e-7


def test_weights_come_back_to_the_precision_of_half_floats():
    weights = torch.rand(4, 9, 11, generator=torch.Generator().manual_seed(0)).softmax(-1)
    assert torch.allclose(decode_weights(entry(weights)), weights, rtol=5e-4)


@pytest.mark.parametrize("text", ["???", "AAAA", encode_weights(torch.ones(3))])
def test_what_is_not_weights_of_the_shape_is_refused(text):
    with pytest.raises(ValueError, match=r"weights of the shape \[1, 2, 2\] cannot be read"):
        decode_weights({"shape": [1, 2, 2], "weights": text})


def test_every_layer_of_every_attention_is_in_the_maps():
    attention = {"cross": {1: torch.ones(1, 2, 3, 4), 0: torch.zeros(1, 2, 3, 4)}}
    maps = sentence_maps(attention)
    assert [(m["attention"], m["layer"], m["shape"]) for m in maps] == [
        ("cross", 0, [2, 3, 4]),
        ("cross", 1, [2, 3, 4]),
    ]
    assert decode_weights(maps[1]).eq(1).all()


def offer(chosen, rows, size):
    for begin in range(0, len(rows), size):
        ids, differences, lengths = zip(*rows[begin : begin + size], strict=True)
        chosen.update(torch.tensor(ids), torch.tensor(differences), torch.tensor(lengths))


@pytest.mark.parametrize("size", [1, 3, 50])
def test_the_sentences_with_the_largest_differences_are_kept_in_any_order(size):
    rows = [(number, (number * 37 % 50) / 50, 20) for number in range(50)]
    best = [n for n, _, _ in sorted(rows, key=lambda row: -row[1])[:10]]
    random.Random(size).shuffle(rows)
    chosen = MostDifferent(10)
    offer(chosen, rows, size)
    assert chosen.sentences() == best


def test_of_equal_sentences_the_first_are_kept():
    rows = [(number, 0.5, 20) for number in reversed(range(30))]
    chosen = MostDifferent(3)
    offer(chosen, rows, 4)
    assert chosen.sentences() == [0, 1, 2]


def test_short_and_long_sentences_come_last():
    chosen = MostDifferent(3)
    offer(chosen, [(0, 0.9, 3), (1, 0.8, 400), (2, 0.1, 8), (3, 0.2, 40)], 4)
    assert chosen.sentences() == [3, 2, 0]
