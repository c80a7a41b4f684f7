"""Stepwise decoding and beam search, compared with the whole pass."""

import pytest
import torch

from tests.models.test_heads import UNEVEN
from tests.support import (
    EVERY_MAPPING,
    assert_steps_equal_the_whole_pass,
    build_model,
    sample,
    search,
    spread_scores,
    tiny_task,
)

NONE = dict.fromkeys(UNEVEN, 0)


@pytest.mark.parametrize(
    ("mapping", "heads"),
    [
        *((mapping, {}) for mapping in (*EVERY_MAPPING, "sparsemax,softmax")),
        *((mapping, heads) for mapping in ("softmax", "entmax") for heads in (UNEVEN, NONE)),
    ],
)
def test_steps_and_single_sentences_match_the_whole_batch(mapping, heads):
    model = spread_scores(build_model(attn_mapping=mapping, **heads)).double()
    together = sample()
    assert_steps_equal_the_whole_pass(model, together)
    short = together["net_input"]["src_lengths"].tolist().index(4)
    pad = tiny_task().source_dictionary.pad()
    source = together["net_input"]["src_tokens"][short]
    target = together["net_input"]["prev_output_tokens"][short]
    source, target = source[source.ne(pad)], target[target.ne(pad)]
    with torch.no_grad():
        among, _ = model(**together["net_input"])
        alone, _ = model(source[None], torch.tensor([len(source)]), target[None])
    torch.testing.assert_close(among[short, : len(target)], alone[0], atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("mapping", "heads"), [("softmax", {}), ("entmax", UNEVEN), ("fusedmax", {}), ("entmax", NONE)]
)
def test_beam_search_finds_the_same_with_and_without_a_shared_source(mapping, heads):
    model = spread_scores(build_model(attn_mapping=mapping, **heads))
    plain = search(model, sample(), beam=4, digits=4)
    model.make_generation_fast_(beamable_mm_beam_size=4, need_attn=False)
    assert search(model, sample(), beam=4, digits=4) == plain


@pytest.mark.parametrize(
    ("orders", "is_copied"),
    [
        (([0, 0, 1, 1, 2, 2], [1, 1, 2, 3, 5, 4]), False),  # within sentences
        (([0, 0, 1, 1, 2, 2], [1, 0, 4, 5]), True),  # one sentence has finished
        (([0, 0, 1, 1, 2, 2], [1, 0, 4, 5], [0, 0, 3, 2], [2, 3]), True),
        (([2, 0, 1], [0, 2, 1]), True),
        (([0, 0, 1, 1], [0, 2, 2, 3]), True),  # across sentences
    ],
)
@torch.no_grad()
def test_the_encoder_output_follows_every_reordering(orders, is_copied):
    model, net_input = build_model(), sample()["net_input"]
    last = found = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
    dims = {"encoder_out": 1, "encoder_padding_mask": 0}
    expected = {name: found[name][0] for name in dims}
    for order in map(torch.tensor, orders):
        last, found = found, model.encoder.reorder_encoder_out(found, order)
        expected = {name: expected[name].index_select(dim, order) for name, dim in dims.items()}
    assert all(torch.equal(found[name][0], value) for name, value in expected.items())
    assert (found is not last) == is_copied
