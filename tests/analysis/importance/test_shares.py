"""Shares of heads over some sentences."""

import pytest
import torch

from fairseq_entmax.analysis.importance.relevance import head_relevance
from fairseq_entmax.analysis.importance.sensitivity import head_sensitivity
from fairseq_entmax.analysis.importance.shares import (
    evenly_spread,
    head_shares,
)
from fairseq_entmax.analysis.measures.importance import Gradient, Relevance
from tests.support import batch, build_model, spread_scores, tiny_task

PAD = tiny_task().target_dictionary.pad()


@pytest.mark.parametrize(
    ("size", "number", "expected"),
    [
        (10, 2, [2, 7]),
        (10, 10, list(range(10))),
        (3, 10, [0, 1, 2]),
        (0, 4, []),
        (1000, 4, [125, 375, 625, 875]),
    ],
)
def test_sentences_are_spread_evenly(size, number, expected):
    assert evenly_spread(size, number) == expected


@pytest.fixture(scope="module")
def model():
    return spread_scores(build_model(attn_mapping="entmax15", encoder_self_attn_heads="0,4"))


SAMPLES = [batch([7, 5], [6, 3]), batch([4], [8])]


def test_relevance_is_a_mean_over_predictions(model):
    given = head_shares(Relevance(), model, SAMPLES, PAD)
    shares = [head_relevance(model, sample).shares() for sample in SAMPLES]
    for attention, layers in given.items():
        for layer, found in layers.items():
            every = torch.cat([one[attention][layer] for one in shares]).double()
            assert len(every) == 17
            assert torch.allclose(found, every.mean(dim=0), atol=1e-6)
            assert found.numel() == 0 or float(found.sum()) == pytest.approx(1)


def test_the_gradient_is_summed_over_sentences_and_shared_among_the_heads_of_a_layer(model):
    given = head_shares(Gradient(), model, SAMPLES, PAD)
    sensitivities = [head_sensitivity(model, sample, PAD) for sample in SAMPLES]
    for attention, layers in given.items():
        for layer, found in layers.items():
            total = sum(one[attention][layer].double().sum(dim=0) for one in sensitivities)
            assert torch.allclose(found, total / total.sum(), atol=1e-6)
