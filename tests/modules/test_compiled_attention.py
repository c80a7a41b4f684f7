"""The whole of attention compiled: the numbers of a plain call."""

import pytest
import torch
from torch import nn

from fairseq_entmax.mappings.registry import parse_mapping
from fairseq_entmax.modules.attention import MultiheadAttention

WIDTH, HEADS = 16, 4


class Attend(nn.Module):
    """Attention of words to themselves, with padding, that sees the past alone."""

    def __init__(self, mapping: str, need_weights: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        built = parse_mapping(mapping).build(HEADS)
        self.attention = MultiheadAttention(WIDTH, HEADS, built, self_attention=True)
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


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("mapping", ["softmax", "entmax", "fusedmax:tv=learned"])
def test_compiled_attention_gives_the_numbers_of_a_plain_call(mapping, need_weights):
    torch._dynamo.reset()
    module = Attend(mapping, need_weights)
    compiled = torch.compile(module, backend="aot_eager")
    for length in (7, 5):
        words, padding = some_words(length=length)
        found = gradients(compiled, module, words, padding)
        for one, other in zip(found, gradients(module, module, words, padding), strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
