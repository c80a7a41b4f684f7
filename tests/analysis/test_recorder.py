"""Recording the weights of every head while a model runs."""

import pytest
import torch

from fairseq_entmax.analysis import AttentionRecorder, record_attention
from fairseq_entmax.attention import attention_modules
from tests.support import EVERY_MAPPING, batch, build_model, spread_scores, tiny_task

SHAPES = {"encoder-self": (3, 4, 7, 7), "decoder-self": (3, 4, 6, 6), "cross": (3, 4, 6, 7)}


def sample():
    return batch([7, 5, 2], [6, 3, 4])


@pytest.mark.parametrize("mapping", EVERY_MAPPING)
def test_recorded_weights_match_fairseqs_and_recording_changes_no_result(mapping):
    model = spread_scores(build_model(attn_mapping=mapping))
    net_input = sample()["net_input"]
    with torch.no_grad():
        before = model(**net_input)[0]
    recorded, during = record_attention(model, sample())
    assert torch.allclose(before, during, atol=1e-5)
    assert not any(module._observers for _, _, module in attention_modules(model))
    shapes = {name: {w.shape for w in layers.values()} for name, layers in recorded.items()}
    assert shapes == {name: {shape} for name, shape in SHAPES.items()}
    assert {tuple(layers) for layers in recorded.values()} == {(0, 1)}
    encoder_out = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
    for layer in range(2):
        assert not recorded["cross"][layer].requires_grad
        requested = {"alignment_layer": layer, "alignment_heads": 4}
        previous = net_input["prev_output_tokens"]
        _, extra = model.decoder(previous, encoder_out=encoder_out, **requested)
        # fairseq returns the mean over heads
        mean = recorded["cross"][layer].mean(dim=1)
        assert torch.allclose(extra["attn"][0], mean, atol=1e-6)


def test_rows_are_probabilities_without_weight_on_padding_or_the_future():
    model = spread_scores(build_model(attn_mapping="entmax15"))
    recorded, _ = record_attention(model, sample())
    source_padding = sample()["net_input"]["src_tokens"] == tiny_task().source_dictionary.pad()
    assert source_padding.any()
    for name, layers in recorded.items():
        for weights in layers.values():
            assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5)
            if name == "decoder-self":
                assert weights.triu(1).eq(0).all()
            else:
                hidden = source_padding[:, None, None].expand_as(weights)
                assert weights[hidden].eq(0).all()


def test_self_attention_that_also_reads_the_source_is_refused():
    model = build_model(cross_self_attention=True, no_cross_attention=True)
    with pytest.raises(ValueError, match="with --cross-self-attention, the decoder's heads read"):
        record_attention(model, sample())


def test_weights_can_keep_their_graph():
    model = spread_scores(build_model(attn_mapping="entmax"))
    with AttentionRecorder(model, keep_graph=True) as recorder:
        model(**sample()["net_input"])
    recorder.attention["encoder-self"][0][..., 0].sum().backward()
    assert model.encoder.layers[0].self_attn.q_proj.weight.grad.abs().sum() > 0
