"""Compiled attention gives the same numbers as a plain call."""

import pytest
import torch

from tests.attention.test_multihead import BATCH, make

pytestmark = pytest.mark.slow

WIDTH = 24


@pytest.mark.parametrize(
    ("mapping", "need_weights"),
    [("softmax", False), ("entmax", False), ("entmax", True), ("fusedmax:tv=learned", False)],
)
def test_compiled_attention_matches_a_plain_call(mapping, need_weights):
    torch._dynamo.reset()
    module = make("encoder-self", mapping, torch.float32)

    def attend(words, padding):
        future = words.new_full((words.size(0), words.size(0)), -torch.inf).triu(1)
        options = {"key_padding_mask": padding, "attn_mask": future, "need_weights": need_weights}
        return module(words, words, words, **options)[0]

    compiled = torch.compile(attend, backend="aot_eager")
    for length in (7, 5) if mapping == "entmax" else (7,):
        padding = torch.zeros(BATCH, length, dtype=torch.bool)
        padding[0, length - 2 :] = True
        torch.manual_seed(2)
        words = torch.randn(length, BATCH, WIDTH, requires_grad=True)
        leaves, results = [words, *module.parameters()], []
        for function in (compiled, attend):
            loss = function(words, padding).pow(2).sum()
            results.append(torch.autograd.grad(loss, leaves))
        torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)
