"""A fairseq model that this package has no code for: it reads speech and writes words."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import register_model, register_model_architecture
from fairseq.models.speech_to_text.s2t_transformer import S2TTransformerModel, base_architecture

from fairseq_entmax.attention import attention_modules
from fairseq_entmax.attentions import weights_of_attentions
from fairseq_entmax.head_names import Head
from fairseq_entmax.models.base import ModelWithHeads
from fairseq_entmax.models.config import set_defaults
from fairseq_entmax.models.features.attention_heads import AttentionHeads
from fairseq_entmax.pruning import prune_state
from tests.support import TINY, batch, tiny_task


@register_model("speech_with_heads")
class Speech(ModelWithHeads, S2TTransformerModel):
    pass


@register_model_architecture("speech_with_heads", "speech_with_heads")
def defaults(args):
    set_defaults(args)
    base_architecture(args)


@pytest.fixture
def args():
    shape = {"input_feat_per_channel": 8, "input_channels": 1, "conv_channels": 16}
    return Namespace(**TINY, **shape, arch="speech_with_heads", cross_attn_heads="3,2")


def scores_of(model):
    words = batch([9, 7], [6, 8])["net_input"]["prev_output_tokens"]
    sounds = torch.randn(2, 24, 8, generator=torch.Generator().manual_seed(0))
    return model(sounds, torch.tensor([24, 20]), words)[0]


def test_a_speech_model_gets_mappings_and_gates_and_learns_its_alphas(args):
    torch.manual_seed(1)
    args.head_gates = "cross"
    model = Speech.build_model(args, tiny_task()).train()
    modules = {(name, layer): module for name, layer, module in attention_modules(model)}
    assert [modules["cross", layer].num_heads for layer in (0, 1)] == [3, 2]
    assert model.head_gates().keys() == {"cross"}
    before = {place: module.mapping.alpha.detach() for place, module in modules.items()}
    assert len(before) == 6
    (scores_of(model) ** 2).sum().backward()
    torch.optim.Adam(model.parameters(), lr=0.1).step()
    assert all((modules[place].mapping.alpha != alpha).all() for place, alpha in before.items())


def test_a_speech_model_is_saved_loaded_and_pruned(args):
    model = Speech.build_model(args, tiny_task()).eval()
    gone = [Head("encoder-self", 1, 2)]
    pruned, _ = prune_state({"model": model.state_dict(), "args": args}, "speech.pt", gone)
    smaller = Speech.build_model(pruned["args"], tiny_task()).eval()
    smaller.load_state_dict(pruned["model"])
    with torch.no_grad():
        model.encoder.transformer_layers[1].self_attn.out_proj.weight[:, 8:12] = 0
    torch.testing.assert_close(scores_of(smaller), scores_of(model))


def test_a_class_that_misstates_its_attentions_is_refused(args, monkeypatch):
    monkeypatch.setattr(Speech, "attentions", ("cross",))
    with pytest.raises(ValueError, match=r"encoder-self, but its .* says cross: "):
        Speech.build_model(args, tiny_task())
    monkeypatch.undo()
    model = Speech.build_model(args, tiny_task())
    model.second = Speech.build_encoder(args)
    with pytest.raises(ValueError, match="Speech has several encoders or decoders, but heads are "):
        model.take_features(model.attention_options, args)


def test_all_features_but_the_heads_can_be_left_out(args, monkeypatch):
    monkeypatch.setattr(Speech, "features", (AttentionHeads,))
    model = Speech.build_model(args, tiny_task()).train()
    model.prepare_criterion(None, None)
    assert model.get_normalized_probs((scores_of(model), None), False).min() > 0


def test_layers_are_numbered_in_order_under_any_names():
    layers = ("encoder.fft_a.0", "encoder.fft_b.0", "decoder.blocks.x", "decoder.blocks.y")
    weights = weights_of_attentions(f"{layer}.self_attn.q_proj.bias" for layer in layers)
    numbers = [(place.attention, place.layer) for place, *_ in weights.values()]
    assert numbers == [(f"{side}coder-self", layer) for side in ("en", "de") for layer in (0, 1)]
    # A tool that converts checkpoints may sort the names as text
    paths = sorted(f"encoder.layers.{number}.self_attn.q_proj.bias" for number in range(12))
    found = weights_of_attentions(paths).items()
    assert all(f".layers.{weight.place.layer}." in path for path, weight in found)
