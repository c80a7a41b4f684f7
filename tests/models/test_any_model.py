"""A model of fairseq's that this package knows nothing of: speech in, words out."""

from argparse import Namespace

import torch
from fairseq.models.speech_to_text.s2t_transformer import S2TTransformerModel

from fairseq_entmax.attention import attention_modules
from fairseq_entmax.models.adaptive import AdaptiveModel
from tests.support import TINY, batch, tiny_task


class Speech(AdaptiveModel, S2TTransformerModel):
    pass


def test_attentions_of_a_speech_model_get_mappings_gates_and_learn_their_alphas():
    shape = {"input_feat_per_channel": 8, "input_channels": 1, "conv_channels": 16}
    args = Namespace(**TINY, **shape, head_gates="cross", cross_attn_heads="3,2")
    model = Speech.build_model(args, tiny_task()).train()
    modules = {(name, layer): module for name, layer, module in attention_modules(model)}
    assert [modules["cross", layer].num_heads for layer in (0, 1)] == [3, 2]
    assert model.head_gates().keys() == {"cross"}
    before = {place: module.mapping.alpha.detach() for place, module in modules.items()}
    assert len(before) == 6
    words = batch([9, 7], [6, 8])["net_input"]["prev_output_tokens"]
    scores, _ = model(torch.randn(2, 24, 8), torch.tensor([24, 20]), words)
    (scores**2).sum().backward()
    torch.optim.Adam(model.parameters(), lr=0.1).step()
    assert all((modules[place].mapping.alpha != alpha).all() for place, alpha in before.items())
