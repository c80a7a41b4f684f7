"""Attention that ``torch.jit.script`` takes."""

import pytest
import torch
from torch import nn

from fairseq_entmax.mappings import parse_mapping
from fairseq_entmax.modules import HardConcreteGate, MultiheadAttention, scriptable


def attention(text="entmax", kept=2, gate=None):
    torch.manual_seed(3)
    mapping = parse_mapping(text).build(kept) if kept else None
    return MultiheadAttention(8, 2, mapping, kept, gate, self_attention=True).eval()


def states():
    return torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(1)) * 3


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
    before = {name: type(part) for name, part in module.named_modules()}
    torch.jit.script(module).save(path)
    assert {name: type(part) for name, part in module.named_modules()} == before
    output, weights = torch.jit.load(path)(inputs, inputs, inputs, padding, need_head_weights=True)
    expected = module(inputs, inputs, inputs, padding, need_head_weights=True)
    torch.testing.assert_close(output, expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(weights, expected[1], atol=1e-6, rtol=0)


def test_what_is_scripted_needs_no_operator_of_this_package():
    graph = str(torch.jit.script(attention()).inlined_graph)
    assert "aten::bmm" in graph
    assert "fairseq_entmax::" not in graph


def test_scripted_attentions_have_caches_of_their_own():
    first, second = (torch.jit.script(attention()) for _ in range(2))
    state = first.set_incremental_state({}, "key", {"a": torch.tensor([1])})
    state = second.set_incremental_state(state, "key", {"a": torch.tensor([2])})
    assert first.get_incremental_state(state, "key")["a"] == 1
    assert second.get_incremental_state(state, "key")["a"] == 2


def test_attention_without_heads_is_its_bias_scripted_too():
    module, inputs = attention(kept=0), states()
    nn.init.normal_(module.out_proj.bias)
    scripted = torch.jit.script(module)
    for options in ({}, {"need_head_weights": True}, {"need_weights": False}):
        output, weights = scripted(inputs, inputs, inputs, **options)
        expected = module(inputs, inputs, inputs, **options)
        assert torch.equal(output, expected[0])
        assert weights is None if expected[1] is None else torch.equal(weights, expected[1])


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
