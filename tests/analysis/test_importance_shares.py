"""Heads' shares of importance over a number of sentences."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch

from fairseq_entmax.analysis.data.samples import evenly_spread
from fairseq_entmax.analysis.importance.relevance import head_relevance
from fairseq_entmax.analysis.importance.sensitivity import head_sensitivity
from fairseq_entmax.analysis.measures.importance import Gradient, Relevance
from fairseq_entmax.analysis.passes import importance_shares
from fairseq_entmax.analysis.passes.importance_shares import (
    FEWEST,
    MORE,
    ShareSums,
    blocks_of,
    shares_of,
    spread_order,
)
from tests.support import batch, build_model, spread_scores


def test_sentences_and_every_prefix_of_their_order_are_evenly_spread():
    assert evenly_spread(3, 10) == [0, 1, 2]
    assert evenly_spread(0, 4) == []
    assert evenly_spread(1000, 4) == [125, 375, 625, 875]
    order = list(spread_order(1000))
    for number in (10, 64, 96, 300):
        for tenth in range(0, 1000, 100):
            own = sum(tenth <= one < tenth + 100 for one in order[:number])
            assert abs(own - number / 10) <= 3


def test_by_default_sentences_are_added_up_to_the_measures_maximum():
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
    expected = residuals.var(dim=0).div(50).sqrt() / (rows.double().sum() / 50)
    assert torch.allclose(whole.errors["cross"][0], expected, rtol=1e-5)


@pytest.mark.parametrize(("noise", "sentences"), [(0.0, FEWEST), (50.0, FEWEST + 4 * MORE)])
def test_sentences_are_added_until_the_errors_are_small(monkeypatch, noise, sentences):
    generator = torch.Generator().manual_seed(2)

    class Known(Relevance):
        precision = 0.01
        sentences = FEWEST + 4 * MORE

        def importance(self, model, sample):
            random = torch.rand(len(sample["id"]), 2, generator=generator)
            return {"cross": {0: 1 + noise * random}}

    monkeypatch.setattr(importance_shares, "samples", lambda _, places, *__: [{"id": places}])
    args = Namespace(relevance_sentences=None, batch_size=None, max_tokens=None)
    args.no_progress_bar = True
    model, tables = SimpleNamespace(model=None), SimpleNamespace(device=None)
    shares = shares_of(args, Known(), model, None, range(1000), tables)
    assert shares.sentences == sentences
    assert (shares.largest_error <= 0.01) == (noise == 0)


@pytest.mark.parametrize(
    ("measure", "parts_of", "number"),
    [
        (Relevance(), lambda *given: head_relevance(*given).shares(), 17),
        (Gradient(), head_sensitivity, 3),
    ],
    ids=["relevance", "gradient"],
)
def test_relevance_is_shared_over_predictions_and_gradient_over_sentences(
    measure, parts_of, number
):
    model = spread_scores(build_model(attn_mapping="entmax15", encoder_self_attn_heads="0,4"))
    sums, samples = ShareSums(), [batch([7, 5], [6, 3]), batch([4], [8])]
    for sample in samples:
        sums.update(measure.importance(model, sample))
    parts = [parts_of(model, sample) for sample in samples]
    for attention, layers in sums.shares().heads.items():
        for layer, found in layers.items():
            every = torch.cat([one[attention][layer] for one in parts]).double()
            assert len(every) == number
            assert torch.allclose(found, every.sum(dim=0) / every.sum(), atol=1e-6)
            assert found.numel() == 0 or float(found.sum()) == pytest.approx(1)
