"""Softmax by torch's fused attention where fairseq's attention is not it: with gates, and across."""

import pytest
import torch

from fairseq_entmax.modules import fused
from fairseq_entmax.modules.gates import HardConcreteGate
from fairseq_entmax.modules.softmax import softmax_attention
from tests.modules.test_attention import HEADS, KINDS, inputs, left_padding, make


def right_padding(kind):
    return left_padding(kind).flip(1)


def attend(module, kind, padding):
    query, key, mask = inputs(kind, torch.float32)
    query.requires_grad_()
    output, _ = module(
        query, key, key, padding, attn_mask=mask, need_weights=False, static_kv=kind == "cross"
    )
    output.square().sum().backward()
    return [output, query.grad, *(one.grad for one in module.parameters() if one.grad is not None)]


@pytest.fixture
def calls(monkeypatch):
    counted = []

    def counting(*given, **options):
        counted.append(options)
        return softmax_attention(*given, **options)

    monkeypatch.setattr(fused, "softmax_attention", counting)
    return counted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pads", [False, True])
def test_with_gates_output_and_gradients_are_those_of_the_parts(kind, pads, calls):
    results = []
    for watches in (False, True):
        module = make(kind, "softmax", torch.float32)
        module.gate = HardConcreteGate(HEADS, init=-1.0).eval()
        if watches:  # somebody who sees the weights keeps the parts apart
            module.mapping.register_forward_hook(lambda *_: None)
        results.append(attend(module, kind, right_padding(kind) if pads else None))
    assert len(calls) == 1
    for whole, apart in zip(*results, strict=True):
        torch.testing.assert_close(whole, apart, atol=2e-5, rtol=2e-5)


def test_across_to_a_source_it_runs_without_gates_too(calls):
    whole = attend(make("cross", "softmax", torch.float32), "cross", None)
    assert len(calls) == 1
    module = make("cross", "softmax", torch.float32)
    module.mapping.register_forward_hook(lambda *_: None)
    for one, other in zip(whole, attend(module, "cross", None), strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_query_sees_no_key_the_parts_give_zeros_instead_of_nan(kind, calls):
    module = make(kind, "softmax", torch.float32)
    module.gate = HardConcreteGate(HEADS, init=-1.0).eval()
    padding = torch.zeros_like(left_padding(kind))
    padding[0] = True
    assert all(one.isfinite().all() for one in attend(module, kind, padding))
    assert not calls


def test_dropout_is_torchs(calls):
    module = make("cross", "softmax", torch.float32).train()
    module.dropout_module.p = 0.5
    torch.manual_seed(3)
    first = attend(module, "cross", None)[0]
    torch.manual_seed(3)
    assert torch.equal(attend(module, "cross", None)[0], first)
    assert not torch.equal(attend(module, "cross", None)[0], first)
    assert [options["dropout"] for options in calls] == [0.5] * 3


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_masks_are_those_of_the_formula(causal, masked):
    generator = torch.Generator().manual_seed(1)
    query, key, value = torch.randn((3, 2, 4, 6, 8), generator=generator, dtype=torch.float64)
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    mask = torch.randn((6, 6), generator=generator) if masked and not causal else None
    scores = 0.3 * query @ key.mT
    if causal:
        scores = scores + torch.full((6, 6), -torch.inf).triu(1)
    if mask is not None:
        scores = scores + mask
    scores = scores.masked_fill(padding[:, None, None], -torch.inf)
    output = softmax_attention(query, key, value, padding, mask, causal, 0.3)
    torch.testing.assert_close(output, scores.softmax(-1) @ value)
