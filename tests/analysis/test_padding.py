"""What is measured without a sample: never padding, a step of decoding, or another batch."""

from argparse import Namespace

import pytest
import torch

from fairseq_entmax.analysis import AttentionRecorder, measure, record_attention
from tests.support import batch, build_model, spread_scores, tiny_task

LENGTHS = [7, 5, 2], [6, 3, 4]


@pytest.fixture(scope="module")
def model():
    return spread_scores(build_model(attn_mapping="softmax"))


@pytest.fixture(scope="module")
def padded(model):
    return record_attention(model, batch(*LENGTHS))[0]


def heads(found, attention="encoder-self"):
    return found[attention][0]["heads"]


def test_padding_is_not_measured_as_words_but_asked_for(padded):
    asked = r"in sentence 1 no query gives weight to the first 2 of the keys.*source_lengths.*\[7, 5, 2\]"
    with pytest.raises(ValueError, match=asked):
        measure(padded)
    with pytest.raises(ValueError, match=r"last 3 of the keys.*target_lengths.*\[6, 3, 4\]"):
        measure(padded, source_lengths=LENGTHS[0])


def test_with_their_lengths_softmax_is_dense(padded):
    found = measure(padded, source_lengths=LENGTHS[0], target_lengths=LENGTHS[1])
    for name in ("encoder-self", "decoder-self", "cross"):
        assert [head["density"] for head in heads(found, name)] == pytest.approx([1.0] * 4)


def test_sentences_without_padding_need_no_lengths(model):
    attention, _ = record_attention(model, batch([5, 5], [4, 4]))
    assert heads(measure(attention))[0]["density"] == pytest.approx(1)


def test_padding_on_the_right_of_a_source_is_found_by_the_weights(padded):
    turned = {
        "encoder-self": {layer: one.flip(2, 3) for layer, one in padded["encoder-self"].items()}
    }
    left = measure({"encoder-self": padded["encoder-self"]}, source_lengths=LENGTHS[0])
    right = measure(turned, source_lengths=LENGTHS[0], has_end=False)
    for one, other in zip(heads(left), heads(right), strict=True):
        assert other["density"] == one["density"]
        assert other["entropy"] == pytest.approx(one["entropy"])


def test_padding_on_the_left_of_a_target_is_found_by_the_weights():
    # The last two tokens of the second sentence: what a causal, even head sees of them
    weights = torch.ones(2, 1, 3, 3).tril()
    weights[1, :, :, 0] = 0
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1)
    (head,) = heads(measure({"decoder-self": {0: weights}}, target_lengths=[3, 2]), "decoder-self")
    assert head["density"] == 1
    assert head["density_histogram"][-1] == 2


def test_lengths_of_other_weights_are_refused(padded):
    with pytest.raises(ValueError, match=r"source_lengths \[3, 5, 2\] .* would be padding then"):
        measure(padded, source_lengths=[3, 5, 2], target_lengths=LENGTHS[1])


@pytest.mark.parametrize(
    ("sources", "lengths"), [((5, 1), [5, 2]), ((5, 3), [5, 5]), ((5, 4, 2), [5, 4, 3])]
)
def test_source_lengths_that_are_too_long_for_dense_heads_are_refused(model, sources, lengths):
    attention, _ = record_attention(model, batch(list(sources), [4] * len(sources)))
    right = ", ".join(map(str, sources))
    message = rf"source_lengths \[{lengths[0]}, .* have padding .* here \[{right}\]"
    for part in (attention, {"cross": attention["cross"]}):
        with pytest.raises(ValueError, match=message):
            measure(part, source_lengths=lengths, target_lengths=[4] * len(sources))


def test_target_lengths_that_are_too_long_for_dense_heads_are_refused(padded):
    with pytest.raises(ValueError, match=r"target_lengths \[6, 4, 4\] .* here \[6, 3, 4\]"):
        measure(padded, source_lengths=LENGTHS[0], target_lengths=[6, 4, 4])


def test_sparse_heads_that_leave_out_an_edge_have_the_length_that_is_given():
    weights = torch.zeros(2, 2, 4, 4)
    weights[0, :, :, :2] = 0.5  # leaves out the last two of four
    weights[1] = torch.eye(4)
    found = heads(measure({"encoder-self": {0: weights}}, source_lengths=[4, 4]))
    assert found[0]["density"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    alone = measure({"encoder-self": {0: weights[:1]}}, source_lengths=[4])
    assert heads(alone)[0]["density"] == pytest.approx(2 / 4)


@pytest.mark.parametrize("lengths", [[6.5, 5, 2], [7.0, 5.0, 2.0], torch.tensor([True] * 3)])
def test_lengths_are_whole_numbers(padded, lengths):
    with pytest.raises(ValueError, match=r"source_lengths got .*: give whole numbers of tokens"):
        measure(padded, source_lengths=lengths, target_lengths=LENGTHS[1])


def test_a_sample_of_other_weights_is_refused(padded):
    other = batch([7, 4, 2], [6, 3, 4])
    with pytest.raises(ValueError, match=r"sentence \d they are on its padding; give the sample"):
        measure(padded, other, tiny_task())


def test_where_targets_end_cannot_be_seen_in_cross_alone(padded):
    with pytest.raises(ValueError, match="do not show where the targets of 3 sentences end"):
        measure({"cross": padded["cross"]}, source_lengths=LENGTHS[0])
    found = measure(
        {"cross": padded["cross"]}, source_lengths=LENGTHS[0], target_lengths=LENGTHS[1]
    )
    assert heads(found, "cross")[0]["density"] == pytest.approx(1)


def test_queries_without_any_weight_are_padding_to_be_named():
    weights = torch.eye(4)[None, None].repeat(2, 1, 1, 1)
    weights[1, :, 3, 3] = 0
    weights[1, :, 2, 3] = 0.5
    weights[1, :, 2, 2] = 0.5
    with pytest.raises(ValueError, match=r"in sentence 1 1 queries have no weight at all"):
        measure({"encoder-self": {0: weights}})


def test_the_density_of_a_decoder_is_of_the_keys_that_it_sees():
    weights = torch.ones(1, 1, 5, 5).tril() / torch.arange(1, 6)[:, None]
    (head,) = heads(measure({"decoder-self": {0: weights}}), "decoder-self")
    assert head["density"] == 1


def test_a_decoder_that_sees_what_is_behind_is_refused():
    weights = torch.full((1, 1, 3, 3), 1 / 3)
    with pytest.raises(ValueError, match="query 0 has weight on keys behind it"):
        measure({"decoder-self": {0: weights}})


@pytest.mark.parametrize("heads_of_decoder", ["4,4", "0,0"])
def test_the_last_step_of_decoding_is_no_sentence(heads_of_decoder):
    model = spread_scores(
        build_model(attn_mapping="softmax", decoder_self_attn_heads=heads_of_decoder)
    )
    generator = tiny_task().build_generator([model], Namespace(beam=1, max_len_a=0, max_len_b=5))
    sample = batch([5], [4])
    with AttentionRecorder(model) as recorder:
        generator.generate([model], sample)
        with pytest.raises(ValueError, match=r"last step of incremental decoding.*look\(model"):
            measure(recorder.attention)
        model(**sample["net_input"])
    found = measure(recorder.attention, sample, tiny_task())
    assert heads(found, "cross")[0]["density"] == pytest.approx(1)


def test_cross_taken_out_of_a_step_is_refused_unless_targets_are_said_to_have_one_token(model):
    generator = tiny_task().build_generator([model], Namespace(beam=2, max_len_a=0, max_len_b=5))
    with AttentionRecorder(model) as recorder:
        generator.generate([model], batch([5], [4]))
    with pytest.raises(ValueError, match=r"cross have one query.*look\(model, text\), or give"):
        measure({"cross": recorder.attention["cross"]})
    attention, _ = record_attention(model, batch([5], [1]))
    assert heads(measure(attention), "cross")[0]["density"] == pytest.approx(1)
    found = measure({"cross": attention["cross"]}, target_lengths=[1])
    assert heads(found, "cross")[0]["density"] == pytest.approx(1)


def test_one_step_is_refused_as_tensors_too():
    with pytest.raises(ValueError, match="last step of incremental decoding"):
        measure({"decoder-self": {0: torch.full((1, 1, 1, 3), 1 / 3)}})


def test_the_last_of_several_passes_is_not_measured_as_all_of_them(model):
    samples = [batch([5, 5], [4, 4]), batch([6, 6], [3, 3])]
    with AttentionRecorder(model) as recorder:
        for sample in samples:
            model(**sample["net_input"])
            measure(recorder.attention)
        for sample in samples:
            model(**sample["net_input"])
    with pytest.raises(ValueError, match="the recorder saw 2 passes and holds the weights of the"):
        measure(recorder.attention)
    assert heads(measure(recorder.attention, samples[1], tiny_task()))[0]["density"] == 1
