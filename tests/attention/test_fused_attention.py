"""Attention by a fused kernel, compared with the same attention computed part by part."""

import importlib.util
from itertools import product

import pytest
import torch
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import nn
from torch.utils.checkpoint import checkpoint

from fairseq_entmax import kernels
from fairseq_entmax.attention import fused, mark_future_mask, masks
from fairseq_entmax.attention.fused import softmax_attention
from fairseq_entmax.attention.gates import HardConcreteGate
from fairseq_entmax.kernels.dropout import factors, new_seed
from fairseq_entmax.kernels.native import attention as native_attention
from tests.attention.test_multihead import HEADS, KINDS, QUERIES, inputs, left_padding, make
from tests.kernels.native.support import can_build, needs_compiler
from tests.support import MAPPINGS, build_model

APART = "sparsemax|entmax|softmax|entmax"
HOT = "sparsemax:temperature=2|entmax:temperature=learned|softmax:temperature=0.5|entmax"
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def calls(monkeypatch):
    """A list with one entry for each run of a fused kernel."""
    counted = []

    def count(module):
        run = module.attention
        monkeypatch.setattr(module, "attention", lambda *a, **k: counted.append(1) or run(*a, **k))

    monkeypatch.setenv(kernels.VARIABLE, kernels.NATIVE if can_build() else kernels.AUTO)
    count(native_attention)
    if importlib.util.find_spec("triton") and not torch.cuda.is_available():
        count(importlib.import_module("fairseq_entmax.kernels.triton.attention"))
    return counted


def attend(module, kind, padding=None, **options):
    query, key, mask = inputs(kind, next(module.parameters()).dtype)
    query.requires_grad_()
    options = {"need_weights": False, **options}
    output, weights = module(query, key, key, padding, attn_mask=mask, **options)
    return query, output, weights


def with_gradients(module, *arguments, **options):
    """The output and the gradients of the query and of all parameters."""
    query, output, weights = attend(module, *arguments, **options)
    assert weights is None
    output.square().sum().backward()
    return [output, query.grad, *(one.grad for one in module.parameters() if one.grad is not None)]


@pytest.fixture
def backend(request):
    if request.param == kernels.NATIVE and not can_build():
        pytest.skip("there is no C compiler")
    if request.param == kernels.TRITON:
        pytest.importorskip("triton")
        if torch.cuda.is_available():
            pytest.skip("these modules are on the CPU, where Triton runs in its interpreter alone")
    return request.param


@pytest.mark.parametrize(
    ("backend", "mapping", "kind"),
    [
        *product([kernels.NATIVE], [*MAPPINGS[1:], APART, HOT], KINDS),
        # Few cases, as each takes seconds in Triton's interpreter
        *((kernels.TRITON, HOT, kind) for kind in ("encoder-self", "cross")),
        (kernels.TRITON, APART, "decoder-self"),
    ],
    indirect=["backend"],
)
def test_fused_output_and_gradients_match_the_parts(kind, mapping, backend, calls, monkeypatch):
    for padding in (left_padding(kind), None):
        results = []
        calls.clear()
        for name in (backend, kernels.TORCH):
            monkeypatch.setenv(kernels.VARIABLE, name)
            module = make(kind, mapping, torch.float32)
            module.gate = HardConcreteGate(HEADS, init=-1.0).eval()
            results.append(with_gradients(module, kind, padding))
            assert len(calls) == 1
            assert mapping != "entmax" or (module.mapping.alpha_logit.grad != 0).all()
        torch.testing.assert_close(*results, atol=2e-5, rtol=2e-5)


def trained(mapping="entmax", kind="encoder-self", **options):
    return make(kind, mapping, torch.float32, **{"dropout": 0.5, **options}).train()


@needs_compiler
@every_kind
def test_kernel_dropout_follows_its_formula(kind, calls, monkeypatch):
    module, seeds = trained(kind=kind), []
    draw = lambda: seeds.append(new_seed()) or seeds[-1]  # noqa: E731
    monkeypatch.setattr("fairseq_entmax.attention.fused.new_seed", draw)
    found = [one.clone() for one in with_gradients(module, kind, left_padding(kind))]
    # The same weights dropped by hand in the module's separate computation
    module.zero_grad()
    monkeypatch.setenv(kernels.VARIABLE, kernels.TORCH)
    module.dropout_module.forward = lambda probs: (
        probs * factors(probs.shape, 0.5, seeds[0], probs.device)
    )
    expected = with_gradients(module, kind, left_padding(kind))
    assert (len(calls), len(seeds)) == (1, 1)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@needs_compiler
def test_kernel_dropout_follows_torchs_seed_and_acts_only_in_training(calls):
    module, outputs = trained(), []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        outputs.append(attend(module, "encoder-self")[1])
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])
    state = torch.get_rng_state()
    plain = attend(module.eval(), "encoder-self")[1]
    assert torch.equal(attend(module, "encoder-self")[1], plain)
    assert torch.equal(torch.get_rng_state(), state)
    module.dropout_module.apply_during_inference = True
    torch.manual_seed(3)
    assert torch.equal(attend(module, "encoder-self")[1], outputs[0])
    assert len(calls) == 6


@needs_compiler
def test_a_changed_dropout_or_mapping_is_called(calls):
    seen = []
    for kind, change in (
        (
            "encoder-self",
            lambda one: one.dropout_module.register_forward_hook(lambda *call: seen.append(call)),
        ),
        ("cross", lambda one: setattr(one.mapping, "forward", lambda z: seen.append(z) or z.exp())),
    ):
        module = trained(kind=kind)
        attend(module, kind)
        change(module)
        attend(module, kind)
    assert (len(calls), len(seen)) == (2, 2)


def test_decoder_attention_is_passed_to_the_kernel_as_causal(monkeypatch):
    seen = []

    def kernel(query, key, value, **options):
        seen.append((options["causal"], options["attn_mask"]))
        return torch.zeros_like(query)

    monkeypatch.setattr(kernels, "attention_for", lambda *_: kernel)
    query, key, mask = inputs("decoder-self", torch.float32)
    module = make("decoder-self", "entmax", torch.float32)
    module(query, key, key, attn_mask=mark_future_mask(mask), need_weights=False)
    assert seen == [(True, None)]


def by_fairseq(run, query):
    layer = nn.Module()
    layer.forward = run
    return checkpoint_wrapper(layer)(query)


@needs_compiler
@pytest.mark.parametrize(
    "recompute",
    [
        lambda run, query: checkpoint(run, query, use_reentrant=False),
        lambda run, query: checkpoint(run, query, use_reentrant=True),
        by_fairseq,
    ],
)
def test_recomputed_activations_drop_the_same_weights(recompute, calls):
    results = []
    for call in (lambda run, query: run(query), recompute):
        module = trained()
        torch.manual_seed(8)
        query, _, _ = inputs("encoder-self", torch.float32)
        query.requires_grad_()

        def run(one, module=module):
            return module(one, one, one, need_weights=False)[0]

        output = call(run, query)
        torch.rand(5)  # later layers draw random numbers, too
        output.square().sum().backward()
        results.append([output, query.grad, *(one.grad for one in module.parameters())])
    assert len(calls) == 3
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize(
    ("mapping", "options", "requested"),
    [
        *(("entmax", {}, {name: True}) for name in ("need_weights", "need_head_weights")),
        ("entmax", {}, {"before_softmax": True}),
        ("softmax", {}, {}),
        ("entmax:alpha=1.0", {}, {}),
        ("entmax", {"dtype": torch.float64}, {}),
        ("fusedmax", {}, {}),
        ("entmax", {"dropout": 1.0}, {}),
    ],
)
def test_unsupported_arguments_are_computed_without_the_kernel(mapping, options, requested, calls):
    module = make("encoder-self", mapping, **{"dtype": torch.float32, **options}).train()
    _, output, more = attend(module, "encoder-self", **requested)
    assert calls == []
    assert (more is None) is not bool(requested)
    if "dropout" in options:
        assert torch.equal(output, module.out_proj.bias.expand_as(output))


def test_autocast_and_the_environment_variable_turn_the_kernel_off(calls, monkeypatch):
    module = make("cross", "entmax", torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attend(module, "cross")[1].dtype == torch.bfloat16
    monkeypatch.setenv(kernels.VARIABLE, kernels.TORCH)
    attend(module, "cross")
    assert calls == []


@needs_compiler
@pytest.mark.parametrize(
    "register",
    [
        lambda mapping, hook: mapping.register_forward_hook(hook),
        lambda mapping, hook: mapping.register_forward_pre_hook(hook),
        lambda mapping, hook: mapping.register_full_backward_hook(hook),
        lambda _, hook: nn.modules.module.register_module_forward_hook(hook),
    ],
)
@pytest.mark.parametrize("text", ["entmax", "sparsemax|softmax*3"])
def test_a_hook_on_the_mapping_is_called(register, text, calls):
    module = make("cross", text, torch.float32)
    watched = module.mapping.parts[1] if "|" in text else module.mapping
    seen = []
    handle = register(watched, lambda one, *_: seen.append(one is watched) and None)
    attend(module, "cross")[1].sum().backward()
    handle.remove()
    assert sum(seen) == 1
    assert calls == []
    attend(module, "cross")
    assert sum(seen) == 1
    assert len(calls) == 1


def test_some_masks_are_added_without_the_kernel(calls):
    query, _, _ = inputs("encoder-self", torch.float32)
    for mapping, learns, rows in (
        ("entmax", True, QUERIES),
        ("entmax:temperature=2", False, QUERIES),
        ("entmax", False, 1),
    ):
        module = make("encoder-self", mapping, torch.float32)
        mask = torch.randn(rows, QUERIES, requires_grad=learns)
        module(query, query, query, attn_mask=mask, need_weights=False)[0].sum().backward()
        assert calls == []
        assert not learns or (mask.grad != 0).any()


def test_a_decoder_marks_its_mask_as_causal():
    mask = build_model().decoder.buffered_future_mask(torch.zeros(5, 2, 16))
    assert masks.is_marked_future_mask(mask)


# torch's fused attention computes softmax where fairseq's attention cannot: gates, cross-attention


@pytest.fixture
def softmax_calls(monkeypatch):
    counted = []

    def counting(*given, **options):
        counted.append(options)
        return softmax_attention(*given, **options)

    monkeypatch.setattr(fused, "softmax_attention", counting)
    return counted


def softmax_results(kind, padding, gated=True, observed=False):
    module = make(kind, "softmax" if gated else "softmax:temperature=learned", torch.float32)
    module.gate = HardConcreteGate(HEADS, init=-1.0).eval() if gated else None
    if observed:  # an observed mapping turns fusing off
        module.mapping.register_forward_hook(lambda *_: None)
    return with_gradients(module, kind, padding, static_kv=kind == "cross")


@every_kind
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("pads", [False, True])
def test_softmax_by_torchs_attention_matches_the_separate_parts(kind, gated, pads, softmax_calls):
    padding = left_padding(kind).flip(1) if pads else None
    whole, apart = (softmax_results(kind, padding, gated, observed) for observed in (False, True))
    assert len(softmax_calls) == 1
    torch.testing.assert_close(whole, apart, atol=5e-5, rtol=5e-5)


@every_kind
def test_queries_without_keys_are_computed_in_parts_without_nan(kind, softmax_calls):
    padding = torch.zeros_like(left_padding(kind))
    padding[0] = True
    assert all(one.isfinite().all() for one in softmax_results(kind, padding))
    assert not softmax_calls


def test_an_adapter_in_the_place_of_a_projection_is_called():
    class Adapted(nn.Sequential):
        weight = property(lambda self: self[0].weight)
        bias = property(lambda self: self[0].bias)

    module = make("encoder-self", "softmax", torch.float32)
    plain = attend(module, "encoder-self")[1]
    module.v_proj = Adapted(module.v_proj, nn.Tanh())
    assert not torch.allclose(attend(module, "encoder-self")[1], plain)


def test_dropout_of_softmax_is_left_to_torch(softmax_calls):
    module = make("cross", "softmax", torch.float32, dropout=0.5).train()
    outputs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        outputs.append(attend(module, "cross", static_kv=True)[1])
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    assert [options["dropout"] for options in softmax_calls] == [0.5] * 3
