"""The attention module on a kernel that fuses its parts, against the same with its parts apart."""

import importlib.util
import os

import pytest
import torch
from fairseq.modules import FairseqDropout
from torch import nn
from torch.utils.checkpoint import checkpoint

from fairseq_entmax import kernels
from fairseq_entmax.kernels.dropout import factors, new_seed
from fairseq_entmax.kernels.native import attention as native_attention
from fairseq_entmax.mappings import Entmax
from fairseq_entmax.modules.gates import HardConcreteGate
from tests.kernels.native.support import can_build, needs_compiler
from tests.modules.test_attention import HEADS, KINDS, QUERIES, inputs, left_padding, make
from tests.support import batch, build_model

SPARSE = ["sparsemax", "entmax15", "entmax", "entmax:alpha=1.2"]


@pytest.fixture
def calls(monkeypatch):
    """How often a fused kernel ran."""
    counted = []

    def count(module):
        original = module.attention
        monkeypatch.setattr(
            module, "attention", lambda *a, **k: counted.append(1) or original(*a, **k)
        )

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


@pytest.fixture(params=[pytest.param(kernels.NATIVE, marks=needs_compiler), kernels.TRITON])
def backend(request):
    if request.param == kernels.TRITON:
        pytest.importorskip("triton")
        if torch.cuda.is_available():
            pytest.skip("these modules are on the CPU, where Triton runs in its interpreter alone")
    return request.param


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mapping", [*SPARSE, "sparsemax|entmax|softmax|entmax"])
@pytest.mark.parametrize("pads", [False, True])
def test_output_and_gradients_are_those_of_the_parts(
    kind, mapping, pads, backend, calls, monkeypatch
):
    padding = left_padding(kind) if pads else None
    results = []
    for name in (backend, kernels.TORCH):
        monkeypatch.setenv(kernels.VARIABLE, name)
        module = make(kind, mapping, torch.float32)
        module.gate = HardConcreteGate(HEADS, init=-1.0).eval()
        query, output, weights = attend(module, kind, padding)
        assert weights is None
        assert len(calls) == 1
        output.square().sum().backward()
        gradients = {name: p.grad for name, p in module.named_parameters()}
        results.append((output, query.grad, *gradients.values()))
        if mapping == "entmax":
            assert (gradients["mapping.alpha_logit"] != 0).all()
    for fused, apart in zip(*results, strict=True):
        torch.testing.assert_close(fused, apart, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mapping", SPARSE)
def test_a_penalty_on_gradients_in_training_has_those_of_the_parts_in_float64(
    kind, mapping, backend, calls, monkeypatch
):
    results = []
    for name, dtype in ((backend, torch.float32), (kernels.TORCH, torch.float64)):
        monkeypatch.setenv(kernels.VARIABLE, name)
        module = make(kind, mapping, torch.float32).to(dtype).train()
        module.gate = HardConcreteGate(HEADS, init=-1.0).eval()
        query, output, _ = attend(module, kind, left_padding(kind))
        assert len(calls) == 1  # the fused one, alone
        leaves = {"query": query, **dict(module.named_parameters())}
        # A bias of keys shifts all scores of a query alike
        del leaves["k_proj.bias"]
        gradients = torch.autograd.grad(
            output.square().sum(), list(leaves.values()), create_graph=True
        )
        sum(gradient.square().sum() for gradient in gradients).backward()
        results.append({key: leaf.grad.double() for key, leaf in leaves.items()})
    fused, apart = results
    assert apart.keys() >= {"query", "q_proj.weight", "out_proj.weight"}
    for key, expected in apart.items():
        assert expected.abs().max() > 1e-3
        error = (fused[key] - expected).abs().max()
        assert error <= 1e-3 * expected.abs().max(), key


def test_an_alpha_that_is_nan_is_seen_in_the_output(backend, calls, monkeypatch):
    for name in (backend, kernels.TORCH):
        monkeypatch.setenv(kernels.VARIABLE, name)
        module = make("cross", "entmax", torch.float32)
        with torch.no_grad():
            module.mapping.alpha_logit[1] = torch.nan
        _, output, _ = attend(module, "cross")
        assert output.isnan().all()
        output.sum().backward()
        gradient = module.mapping.alpha_logit.grad
        assert gradient[1].isnan()
        gradient = module.q_proj.weight.grad.view(HEADS, -1)
        assert gradient[1].isnan().all()
    assert len(calls) == 1


def test_a_hook_on_the_mapping_of_one_head_is_called(backend, calls, monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, backend)
    module, seen = make("cross", "sparsemax|softmax*3", torch.float32), []
    module.mapping.parts[1].register_forward_hook(lambda *call: seen.append(call[2].shape))
    attend(module, "cross")
    assert calls == []
    assert [shape[1] for shape in seen] == [3]


@pytest.mark.parametrize(
    "options", [{"need_weights": True}, {"need_head_weights": True}, {"before_softmax": True}]
)
def test_what_the_kernel_does_not_have_is_computed_apart(options, calls):
    module = make("cross", "entmax", torch.float32)
    _, _, more = attend(module, "cross", **options)
    assert more is not None
    assert calls == []


def trained(mapping="entmax", kind="encoder-self", **options):
    return make(kind, mapping, torch.float32, **{"dropout": 0.5, **options}).train()


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_dropout_of_weights_is_in_the_kernel_and_by_the_formula(kind, calls, monkeypatch):
    module, seeds = trained(kind=kind), []
    draw = lambda: seeds.append(new_seed()) or seeds[-1]  # noqa: E731
    monkeypatch.setattr("fairseq_entmax.modules.fused.new_seed", draw)
    padding = left_padding(kind)
    query, output, _ = attend(module, kind, padding)
    output.square().sum().backward()
    found = [query.grad, *(one.grad.clone() for one in module.parameters())]
    assert (len(calls), len(seeds)) == (1, 1)
    # The same weights dropped by hand, where the module computes apart
    module.zero_grad()
    module.dropout_module.forward = lambda probs: (
        probs * factors(probs.shape, 0.5, seeds[0], probs.device)
    )
    query, expected, _ = attend(module, kind, padding)
    expected.square().sum().backward()
    assert (len(calls), len(seeds)) == (1, 1)
    torch.testing.assert_close(output, expected, atol=2e-5, rtol=2e-5)
    for one, other in zip(
        found, [query.grad, *(one.grad for one in module.parameters())], strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@needs_compiler
def test_dropout_in_the_kernel_is_that_of_the_seed_of_torch_and_of_training_alone(calls):
    module, outputs = trained(), []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        outputs.append(attend(module, "encoder-self")[1])
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])
    plain = attend(module.eval(), "encoder-self")[1]
    state = torch.get_rng_state()
    assert torch.equal(attend(module, "encoder-self")[1], plain)
    assert torch.equal(torch.get_rng_state(), state)
    module.dropout_module.apply_during_inference = True
    torch.manual_seed(3)
    assert torch.equal(attend(module, "encoder-self")[1], outputs[0])
    assert len(calls) == 6


@needs_compiler
def test_the_mean_of_outputs_with_dropout_in_the_kernel_is_that_without(calls):
    module, draws = trained(dropout=0.3), 2000
    torch.manual_seed(0)
    with torch.no_grad():
        outputs = torch.stack([attend(module, "encoder-self")[1] for _ in range(draws)]).double()
        expected = attend(module.eval(), "encoder-self")[1]
    assert len(calls) == draws + 1
    error = outputs.std(0) / draws**0.5
    assert ((outputs.mean(0) - expected).abs() < 6 * error + 1e-5).all()


@pytest.mark.parametrize("change", ["all", "structure", "hook", "module"])
def test_dropout_that_the_kernel_does_not_take_is_computed_apart(change, calls):
    seen = []
    module = trained(
        "fusedmax" if change == "structure" else "entmax",
        dropout=1.0 if change == "all" else 0.5,
    )
    if change == "hook":
        module.dropout_module.register_forward_hook(lambda *call: seen.append(call))
    if change == "module":
        module.dropout_module = Kept(0.5)
    _, output, _ = attend(module, "encoder-self")
    assert calls == []
    assert len(seen) == (change == "hook")
    if change == "all":
        assert torch.equal(output, module.out_proj.bias.expand_as(output))


class Kept(FairseqDropout):
    """A dropout of somebody else."""

    def forward(self, x, inplace=False):
        return x


@needs_compiler
@pytest.mark.parametrize("reenters", [False, True])
def test_activations_that_are_computed_again_drop_the_same_weights(reenters, calls):
    results = []
    for again in (False, True):
        module = trained()
        torch.manual_seed(8)
        query, _, _ = inputs("encoder-self", torch.float32)
        query.requires_grad_()

        def run(one, module=module):
            return module(one, one, one, need_weights=False)[0]

        output = run(query) if not again else checkpoint(run, query, use_reentrant=reenters)
        torch.rand(5)  # what comes behind draws, too
        output.square().sum().backward()
        results.append([output, query.grad, *(one.grad for one in module.parameters())])
    assert len(calls) == 3
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_softmax_and_other_precisions_are_computed_apart(calls):
    attend(make("cross", "softmax", torch.float32), "cross")
    attend(make("cross", "entmax:alpha=1.0", torch.float32), "cross")
    attend(make("cross", "entmax", torch.float64), "cross")
    module = make("cross", "entmax", torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, output, _ = attend(module, "cross")
    assert calls == []
    assert output.dtype == torch.bfloat16


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
def test_a_hook_on_the_mapping_is_called(register, calls):
    module = make("cross", "entmax", torch.float32)
    seen = []
    handle = register(module.mapping, lambda one, *_: seen.append(one is module.mapping) and None)
    attend(module, "cross")[1].sum().backward()
    handle.remove()
    assert sum(seen) == 1
    assert calls == []
    attend(module, "cross")
    assert sum(seen) == 1
    assert len(calls) == 1


def test_a_mapping_that_was_changed_is_called(calls):
    class Halved(Entmax):
        def forward(self, scores):
            return super().forward(scores) / 2

    module = make("cross", "entmax", torch.float32)
    plain = attend(module, "cross", need_head_weights=True)[2]
    halved = Halved(num_alphas=HEADS)
    halved.load_state_dict(module.mapping.state_dict())
    module.mapping = halved
    calls.clear()
    _, output, _ = attend(module, "cross")
    assert calls == []
    weights = attend(module, "cross", need_head_weights=True)[2]
    torch.testing.assert_close(weights, plain / 2)
    replaced = make("cross", "entmax", torch.float32)
    replaced.mapping.forward = halved.forward
    torch.testing.assert_close(attend(replaced, "cross")[1], output)
    assert calls == []


@pytest.mark.parametrize("change", ["gradient", "whole numbers", "one row"])
def test_masks_of_another_kind_are_added_apart(change, calls):
    module = make("encoder-self", "entmax", torch.float32)
    query, _, _ = inputs("encoder-self", torch.float32)
    mask = torch.randn(QUERIES, QUERIES)
    if change == "gradient":
        mask.requires_grad_()
    elif change == "whole numbers":
        mask = mask.long()
    else:
        mask = mask[:1]
    output, _ = module(query, query, query, attn_mask=mask, need_weights=False)
    assert calls == []
    if change == "gradient":
        output.sum().backward()
        assert (mask.grad != 0).any()


def test_padding_without_dimensions_is_none(calls):
    module = make("encoder-self", "entmax", torch.float32)
    query, _, _ = inputs("encoder-self", torch.float32)
    none, empty = (
        module(query, query, query, padding, need_weights=False)[0]
        for padding in (None, torch.tensor(False))
    )
    assert torch.equal(none, empty)


@needs_compiler
def test_a_decoder_says_that_its_mask_hides_the_future(monkeypatch):
    causal = []
    original = native_attention.attention
    monkeypatch.setenv(kernels.VARIABLE, kernels.NATIVE)

    def watched(*arguments, **options):
        causal.append((options["causal"], options["attn_mask"]))
        return original(*arguments, **options)

    monkeypatch.setattr(native_attention, "attention", watched)
    model = build_model(decoder_layers=1, encoder_layers=1)
    sample = batch([5, 6], [7, 4])
    with torch.no_grad():
        logits, _ = model(**sample["net_input"])
    assert causal == [
        (False, None),
        (True, None),
    ]  # encoder, decoder; cross-attention gives weights
    monkeypatch.setenv(kernels.VARIABLE, kernels.TORCH)
    with torch.no_grad():
        torch.testing.assert_close(logits, model(**sample["net_input"])[0], atol=1e-5, rtol=1e-5)


def test_extra_keys_are_computed_apart(calls):
    module = make("encoder-self", "entmax", torch.float32, add_zero_attn=True)
    attend(module, "encoder-self")
    assert calls == []


def test_the_switch_forbids_it(calls):
    os.environ[kernels.VARIABLE] = kernels.TORCH  # the fixture puts it back
    attend(make("cross", "entmax", torch.float32), "cross")
    assert calls == []
