"""Shares of heads over some sentences."""

import pytest
import torch

from fairseq_entmax.analysis.importance.relevance import head_relevance
from fairseq_entmax.analysis.importance.sensitivity import head_sensitivity
from fairseq_entmax.analysis.importance.shares import (
    FEWEST,
    MORE,
    ShareSums,
    blocks_of,
    evenly_spread,
    spread_order,
    until_precise,
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


@pytest.mark.parametrize("number", [10, 64, 96, 300])
def test_every_beginning_of_the_order_is_spread_evenly(number):
    size = 1000
    begun = list(spread_order(size))[:number]
    for tenth in range(10):
        own = sum(tenth * 100 <= one < tenth * 100 + 100 for one in begun)
        assert abs(own - number / 10) <= 3


def test_without_a_number_sentences_are_added_up_to_the_most_that_the_measure_takes():
    blocks = blocks_of(Relevance(), 10_000, None)
    assert [len(block) for block in blocks[:3]] == [FEWEST, MORE, MORE]
    every = [number for block in blocks for number in block]
    assert len(every) == len(set(every)) == Relevance.sentences


def sums_of(*parts):
    sums = ShareSums()
    for part in parts:
        sums.update({"cross": {0: part}})
    return sums


def test_the_error_does_not_depend_on_batches():
    rows = torch.rand(50, 3, generator=torch.Generator().manual_seed(1))
    whole, parts = sums_of(rows).shares(), sums_of(*rows.split(7)).shares()
    assert whole.sentences == parts.sentences == 50
    assert torch.allclose(whole.errors["cross"][0], parts.errors["cross"][0], rtol=1e-6)
    # By the definition
    share = rows.double().sum(dim=0) / rows.double().sum()
    residuals = rows.double() - share * rows.double().sum(dim=1, keepdim=True)
    mean = rows.double().sum() / 50
    expected = residuals.var(dim=0).div(50).sqrt() / mean
    assert torch.allclose(whole.errors["cross"][0], expected, rtol=1e-5)


@pytest.mark.parametrize(("noise", "blocks"), [(0.0, 1), (50.0, 5)])
def test_sentences_are_added_until_the_errors_are_small(noise, blocks):
    class Known(Relevance):
        precision = 0.01

    generator = torch.Generator().manual_seed(2)
    sums, taken = ShareSums(), 0
    wanted = [[0] * 60] * 5
    for block in until_precise(Known(), sums, wanted, lambda block: [block]):
        taken += 1
        sums.update({"cross": {0: 1 + noise * torch.rand(len(block), 2, generator=generator)}})
    assert taken == blocks
    assert (sums.shares().largest_error <= 0.01) == (noise == 0)


@pytest.fixture(scope="module")
def model():
    return spread_scores(build_model(attn_mapping="entmax15", encoder_self_attn_heads="0,4"))


SAMPLES = [batch([7, 5], [6, 3]), batch([4], [8])]


@pytest.mark.parametrize("measure", [Relevance(), Gradient()], ids=["relevance", "gradient"])
def test_shares_are_over_predictions_of_relevance_and_over_sentences_of_the_gradient(
    model, measure
):
    sums = ShareSums()
    for sample in SAMPLES:
        sums.update(measure.importance(model, sample, PAD))
    relevance = [head_relevance(model, sample).shares() for sample in SAMPLES]
    gradients = [head_sensitivity(model, sample, PAD) for sample in SAMPLES]
    for attention, layers in sums.shares().heads.items():
        for layer, found in layers.items():
            parts = relevance if measure.name == "relevance" else gradients
            every = torch.cat([one[attention][layer] for one in parts]).double()
            assert len(every) == (17 if measure.name == "relevance" else 3)
            assert torch.allclose(found, every.sum(dim=0) / every.sum(), atol=1e-6)
            assert found.numel() == 0 or float(found.sum()) == pytest.approx(1)
