"""The whole of attention compiled and exported: one graph, the numbers of a plain call."""

import pytest
import torch
from torch import nn

from fairseq_entmax import kernels
from fairseq_entmax.mappings.registry import parse_mapping
from fairseq_entmax.modules.attention import MultiheadAttention

WIDTH, HEADS = 16, 4


class Attend(nn.Module):
    """Attention of words to themselves, with padding, that sees the past alone."""

    def __init__(self, mapping: str, need_weights: bool, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        built = parse_mapping(mapping).build(HEADS)
        self.attention = MultiheadAttention(
            WIDTH, HEADS, built, self_attention=True, dropout=dropout
        )
        self.need_weights = need_weights

    def forward(self, words, padding):
        future = words.new_full((words.size(0), words.size(0)), -torch.inf).triu(1)
        return self.attention(
            *(words, words, words),
            key_padding_mask=padding,
            attn_mask=future,
            need_weights=self.need_weights,
        )[0]


def some_words(batch=3, length=7):
    padding = torch.zeros(batch, length, dtype=torch.bool)
    padding[0, length - 2 :] = True
    return torch.randn(length, batch, WIDTH, generator=torch.Generator().manual_seed(2)), padding


def gradients(function, module, words, padding):
    leaves = [words.clone().requires_grad_(), *module.parameters()]
    result = function(leaves[0], padding).pow(2).sum()
    return torch.autograd.grad(result, leaves)


@pytest.mark.parametrize("backend", [kernels.TORCH, kernels.AUTO])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("mapping", ["softmax", "entmax", "entmax15", "fusedmax:tv=learned"])
def test_compiled_attention_is_one_graph(mapping, need_weights, backend, monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, backend)
    assert_compiles(Attend(mapping, need_weights))


@pytest.mark.parametrize("mapping", ["oscarmax:oscar=learned", "entmax:tv=learned", "sqpnormmax"])
def test_compiled_attention_with_other_mappings_is_one_graph(mapping):
    assert_compiles(Attend(mapping, need_weights=False))


def test_compiled_attention_with_dropout_of_weights_draws_as_without_compilation():
    module = Attend("entmax", need_weights=False, dropout=0.3)
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    results = []
    for function in (compiled, module):
        torch.manual_seed(4)
        results += [gradients(function, module, *some_words()) for _ in range(2)]
    for one, other in zip(results[:2], results[2:], strict=True):
        for found, expected in zip(one, other, strict=True):
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(results[0][0], results[1][0])


def assert_compiles(module):
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    found = gradients(compiled, module, *some_words())
    expected = gradients(module, module, *some_words())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mapping", ["softmax", "entmax", "fusedmax:tv=learned"])
def test_exported_attention_takes_batches_of_any_size(mapping):
    module = Attend(mapping, need_weights=False).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(
        module, some_words(), dynamic_shapes={"words": {1: batch}, "padding": {0: batch}}
    )
    words = some_words(batch=5)
    torch.testing.assert_close(program.module()(*words), module(*words))


def test_exported_softmax_is_right_for_padding_that_it_was_not_exported_with():
    module = Attend("softmax", need_weights=False).eval()
    program = torch.export.export(module, some_words())
    words, padding = some_words()
    padding[1] = True  # torch's own attention gives NaN to queries without keys
    torch.testing.assert_close(program.module()(words, padding), module(words, padding))
    assert program.module()(words, padding).isfinite().all()


@pytest.mark.slow
def test_inductor_compiles_attention():
    module = Attend("entmax", need_weights=False)
    torch._dynamo.reset()
    found = gradients(torch.compile(module, fullgraph=True), module, *some_words())
    expected = gradients(module, module, *some_words())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
