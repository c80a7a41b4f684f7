"""Attention maps: which sentences, and how weights are written."""

import pytest
import torch

from fairseq_entmax.analysis.maps import (
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
