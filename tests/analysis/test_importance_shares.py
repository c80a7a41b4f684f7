"""Heads' shares of importance over a number of sentences."""

import pytest
import torch

from fairseq_entmax.analysis.data.samples import evenly_spread
from fairseq_entmax.analysis.importance.relevance import head_relevance
from fairseq_entmax.analysis.importance.sensitivity import head_sensitivity
from fairseq_entmax.analysis.measures.importance import Gradient, Relevance
from fairseq_entmax.analysis.passes.importance_shares import shares
from tests.support import batch, build_model, spread_scores


def test_sentences_are_evenly_spread():
    assert evenly_spread(3, 10) == [0, 1, 2]
    assert evenly_spread(0, 4) == []
    assert evenly_spread(1000, 4) == [125, 375, 625, 875]


def test_the_error_does_not_depend_on_batches():
    rows = torch.rand(50, 3, generator=torch.Generator().manual_seed(1))
    whole = shares([{"cross": {0: rows}}])
    parts = shares([{"cross": {0: part}} for part in rows.split(7)])
    assert whole.sentences == parts.sentences == 50
    assert torch.allclose(whole.errors["cross"][0], parts.errors["cross"][0], rtol=1e-6)
    # By the definition
    share = rows.double().sum(dim=0) / rows.double().sum()
    residuals = rows.double() - share * rows.double().sum(dim=1, keepdim=True)
    expected = residuals.var(dim=0).div(50).sqrt() / (rows.double().sum() / 50)
    assert torch.allclose(whole.errors["cross"][0], expected, rtol=1e-5)
    assert shares([{"cross": {0: rows[:1]}}]).errors["cross"][0].isnan().all()
    assert not shares([{"cross": {0: 0 * rows}}]).heads["cross"][0].any()


@pytest.mark.parametrize(
    ("measure", "parts_of", "number"),
    [
        (Relevance(), lambda *given: head_relevance(*given).shares(), 17),
        (Gradient(), head_sensitivity, 3),
    ],
    ids=["relevance", "gradient"],
)
def test_relevance_is_shared_over_predictions_gradient_over_sentences(measure, parts_of, number):
    model = spread_scores(build_model(attn_mapping="entmax15", encoder_self_attn_heads="0,4"))
    samples = [batch([7, 5], [6, 3]), batch([4], [8])]
    found_shares = shares([measure.importance(model, sample) for sample in samples])
    parts = [parts_of(model, sample) for sample in samples]
    for attention, layers in found_shares.heads.items():
        for layer, found in layers.items():
            every = torch.cat([one[attention][layer] for one in parts]).double()
            assert len(every) == number
            assert torch.allclose(found, every.sum(dim=0) / every.sum(), atol=1e-6)
            assert found.numel() == 0 or float(found.sum()) == pytest.approx(1)
