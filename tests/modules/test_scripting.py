"""Attention that ``torch.jit.script`` takes, and fairseq's own pruning of its heads."""

import pytest
import torch
from torch import nn

from fairseq_entmax.mappings import parse_mapping
from fairseq_entmax.modules import HardConcreteGate, MultiheadAttention, scriptable


def attention(text="entmax", heads=2, kept=None, gate=None, **options):
    torch.manual_seed(3)
    number = heads if kept is None else kept
    mapping = parse_mapping(text).build(number) if number else None
    options = {"self_attention": True, **options}
    return MultiheadAttention(4 * heads, heads, mapping, kept, gate, **options).eval()


def states(length=5, width=8):
    return torch.randn(length, 3, width, generator=torch.Generator().manual_seed(1)) * 3


def decided_gate():
    gate = HardConcreteGate(2).eval()
    with torch.no_grad():
        gate.weight.copy_(torch.tensor([0.03, -0.05]))
    return gate


@pytest.mark.parametrize("text", ["softmax", "entmax", "sparsemax"])
def test_attention_gives_the_same_scripted(text, tmp_path):
    module, inputs = attention(text, gate=decided_gate()), states()
    padding = torch.tensor([[False] * 5, [False] * 4 + [True], [True] * 5])
    path = str(tmp_path / "attention.pt")
    torch.jit.script(module).save(path)
    output, weights = torch.jit.load(path)(inputs, inputs, inputs, padding, need_head_weights=True)
    expected = module(inputs, inputs, inputs, padding, need_head_weights=True)
    torch.testing.assert_close(output, expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(weights, expected[1], atol=1e-6, rtol=0)


def test_what_is_scripted_needs_no_operator_of_this_package():
    graph = str(torch.jit.script(attention()).inlined_graph)
    assert "aten::bmm" in graph
    assert "fairseq_entmax::" not in graph


def test_scripting_leaves_the_attention_as_it_is():
    module = attention(gate=decided_gate())
    before = {name: type(part) for name, part in module.named_modules()}
    torch.jit.script(module)
    assert {name: type(part) for name, part in module.named_modules()} == before


def test_scripted_attentions_have_caches_of_their_own():
    first, second = (torch.jit.script(attention()) for _ in range(2))
    state = first.set_incremental_state({}, "key", {"a": torch.tensor([1])})
    state = second.set_incremental_state(state, "key", {"a": torch.tensor([2])})
    assert first.get_incremental_state(state, "key")["a"] == 1
    assert second.get_incremental_state(state, "key")["a"] == 2


def test_attention_without_heads_is_its_bias_scripted_too():
    module, inputs = attention(kept=0), states()
    nn.init.normal_(module.out_proj.bias)
    output, weights = torch.jit.script(module)(inputs, inputs, inputs)
    expected = module(inputs, inputs, inputs)
    assert torch.equal(output, expected[0])
    assert torch.equal(weights, expected[1])


def test_an_attention_that_is_changed_is_refused():
    class Changed(MultiheadAttention):
        def forward(self, *args, **options):
            return super().forward(*args, **options)

    module = attention()
    module.__class__ = Changed
    with pytest.raises(
        ValueError, match=r"Changed cannot be .* it changes forward of MultiheadAtt"
    ):
        torch.jit.script(module)


def test_a_copy_has_the_parameters_of_the_original():
    module = attention()
    copy = scriptable(module)
    assert copy.q_proj.weight is module.q_proj.weight
    assert type(module.mapping) is not type(copy.mapping)


@pytest.mark.parametrize("text", ["softmax", "entmax"])
def test_fairseqs_own_pruning_keeps_heads_with_what_they_learned(text):
    module, inputs = attention(text, heads=4), states(width=16)
    with torch.no_grad():
        module.out_proj.bias.zero_()
        for head in (0, 2):  # which is then without effect
            module.out_proj.weight[:, 4 * head : 4 * head + 4] = 0
            module.v_proj.weight[4 * head : 4 * head + 4] = 0
    expected = module(inputs, inputs, inputs)[0]
    kept = module._get_reserve_head_index(num_heads_to_keep=2)
    assert sorted(kept) == [(4, 8), (12, 16)]
    module._adaptive_prune_heads(kept)
    module._set_skip_embed_dim_check()
    assert module.num_heads == 2
    torch.testing.assert_close(module(inputs, inputs, inputs)[0], expected, atol=1e-5, rtol=0)


def test_fairseqs_own_pruning_says_what_to_do_about_gates():
    module = attention(gate=decided_gate())
    with pytest.raises(ValueError, match=r"without gates .* 'fairseq-entmax prune'"):
        module._adaptive_prune_heads(module._get_reserve_head_index(1))
