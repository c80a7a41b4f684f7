from argparse import Namespace

import pytest
import torch

from fairseq_entmax import kernels
from tests.support import (
    EVERY_MAPPING,
    assert_steps_equal_the_whole_pass,
    batch,
    build_model,
    spread_scores,
    tiny_task,
)

UNEVEN = {
    "encoder_self_attn_heads": "1,3",
    "decoder_self_attn_heads": "0,2",
    "cross_attn_heads": "4,0",
}
NONE = dict.fromkeys(UNEVEN, 0)


def sample():
    return batch([9, 7, 4], [6, 8, 5], left_pad_source=True, left_pad_target=False)


@pytest.mark.parametrize(
    ("mapping", "heads"),
    [
        *((mapping, {}) for mapping in (*EVERY_MAPPING, "sparsemax,softmax")),
        *((mapping, heads) for mapping in ("softmax", "entmax") for heads in (UNEVEN, NONE)),
    ],
)
def test_decoding_step_by_step_equals_the_full_forward_pass(mapping, heads):
    model = spread_scores(build_model(attn_mapping=mapping, **heads)).double()
    assert_steps_equal_the_whole_pass(model, sample())


@pytest.mark.parametrize("mapping", EVERY_MAPPING)
def test_a_sentence_gives_the_same_alone_and_among_longer_ones(mapping):
    model = spread_scores(build_model(attn_mapping=mapping)).double()
    together = batch([9, 4], [8, 5], left_pad_source=True, left_pad_target=False)
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
def test_beam_search_finds_the_same_with_and_without_the_shared_source(mapping, heads):
    model = spread_scores(build_model(attn_mapping=mapping, **heads))
    task = tiny_task()
    arguments = Namespace(beam=4, max_len_a=0, max_len_b=10)

    def translate(model):
        generator = task.build_generator([model], arguments)
        return [
            [(hypo["tokens"].tolist(), round(hypo["score"].item(), 4)) for hypo in sentence]
            for sentence in task.inference_step(generator, [model], sample())
        ]

    plain = translate(model)
    model.make_generation_fast_(beamable_mm_beam_size=4, need_attn=False)
    assert translate(model) == plain


def reordered(*orders):
    """The output of an encoder after some reorderings, and what indexing makes of it."""
    model, net_input = build_model(), sample()["net_input"]
    with torch.no_grad():
        given = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
        expected = {name: list(tensors) for name, tensors in given.items()}
        kept = [given]
        for order in map(torch.tensor, orders):
            kept.append(model.encoder.reorder_encoder_out(kept[-1], order))
            for name, dim in (("encoder_out", 1), ("encoder_padding_mask", 0)):
                expected[name] = [expected[name][0].index_select(dim, order)]
    return kept, expected


@pytest.mark.parametrize(
    "orders",
    [
        ([0, 0, 1, 1, 2, 2], [1, 1, 2, 3, 5, 4]),  # within sentences
        ([0, 0, 1, 1, 2, 2], [1, 0, 4, 5]),  # one has finished
        ([0, 0, 1, 1, 2, 2], [1, 0, 4, 5], [0, 0, 3, 2], [2, 3]),
        ([2, 0, 1], [0, 2, 1]),
        ([0, 0, 1, 1], [0, 2, 2, 3]),  # from sentence to sentence
    ],
)
def test_the_encoders_output_follows_every_order(orders):
    kept, expected = reordered(*orders)
    for name in ("encoder_out", "encoder_padding_mask"):
        assert torch.equal(kept[-1][name][0], expected[name][0])


def test_the_encoders_output_is_not_copied_within_sentences():
    kept, _ = reordered([0, 0, 1, 1, 2, 2], [1, 1, 2, 3, 5, 4])
    assert kept[2] is kept[1]


@pytest.mark.parametrize("mapping", ["entmax", "entmax15", "sparsemax"])
@pytest.mark.parametrize("beam", [1, 4])
def test_the_kernel_for_steps_finds_the_translations_that_fairseqs_way_finds(
    mapping, beam, monkeypatch
):
    model, task = spread_scores(build_model(attn_mapping=mapping)), tiny_task()
    generator = task.build_generator([model], Namespace(beam=beam, max_len_a=0, max_len_b=40))
    found = []
    for step_for in (kernels.step_for, lambda query: None):
        monkeypatch.setattr(kernels, "step_for", step_for)
        sentences = task.inference_step(generator, [model], sample())
        found.append([[hypothesis["tokens"].tolist() for hypothesis in one] for one in sentences])
    assert found[0] == found[1]
