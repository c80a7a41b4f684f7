"""Attention with gates on its heads, with some of its heads, and with none."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fairseq_entmax.mappings import Entmax, parse_mapping, parse_mappings
from fairseq_entmax.modules import HardConcreteGate, MultiheadAttention
from tests.modules.test_attention import (
    BATCH,
    HEADS,
    KEYS,
    KINDS,
    QUERIES,
    WIDTH,
    by_hand,
    inputs,
    left_padding,
)
from tests.support import MAPPINGS

SIZE = WIDTH // HEADS
# In evaluation: closed, between, open, between
LOG_A = [-4.0, -0.6, 5.0, 0.8]


def make(kind, mapping="entmax", kept_heads=None, gated=False, dtype=torch.float64, **options):
    torch.manual_seed(0)
    heads = HEADS if kept_heads is None else kept_heads
    module = parse_mapping(mapping).build(num_heads=heads) if heads else None
    gate = HardConcreteGate(heads) if gated else None
    # The same projections for every mapping and any number of heads
    torch.manual_seed(1)
    attention = MultiheadAttention(
        WIDTH, HEADS, module, kept_heads=kept_heads, gate=gate, **KINDS[kind], **options
    )
    with torch.no_grad():
        attention.out_proj.bias.normal_()
        if heads:
            attention.q_proj.weight.mul_(6.0)  # scores far enough apart for zeros
        if gated:
            gate.weight.copy_(torch.tensor(LOG_A) / gate.lr_factor)
    return attention.to(dtype).eval()


def gated_by_hand(attention, gates, query, key, padding, mask):
    """Each head's output by the definition of attention, times its gate, then projected."""
    alpha = attention.mapping.alpha
    alphas = alpha.tolist() if isinstance(alpha, torch.Tensor) else [alpha] * HEADS
    projections = SimpleNamespace(
        q_proj=attention.q_proj,
        k_proj=attention.k_proj,
        v_proj=attention.v_proj,
        out_proj=nn.Identity(),
    )
    heads, weights = by_hand(projections, query, key, padding, mask, alphas)
    return attention.out_proj(heads * gates.repeat_interleave(SIZE)), weights


def with_heads_of(full, kept, kind):
    """An attention that has only some heads of another, in their order."""
    state = full.state_dict()
    rows = torch.cat([torch.arange(head * SIZE, (head + 1) * SIZE) for head in kept])
    for name in ("q_proj", "k_proj", "v_proj"):
        for part in ("weight", "bias"):
            state[f"{name}.{part}"] = state[f"{name}.{part}"][rows]
    state["out_proj.weight"] = state["out_proj.weight"][:, rows]
    if "mapping.alpha_logit" in state:
        state["mapping.alpha_logit"] = state["mapping.alpha_logit"][list(kept)]
    mapping = copy.deepcopy(full.mapping)
    if isinstance(mapping, Entmax) and mapping.alpha_logit is not None:
        mapping.alpha_logit = nn.Parameter(mapping.alpha_logit.detach()[list(kept)])
    smaller = MultiheadAttention(WIDTH, HEADS, mapping, kept_heads=len(kept), **KINDS[kind])
    smaller.double().load_state_dict({k: v for k, v in state.items() if not k.startswith("gate.")})
    return smaller.eval()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_gate_multiplies_its_head_before_the_output_projection(kind, mapping, training):
    attention = make(kind, mapping, gated=True).train(training)
    attention.gate.use_draw(torch.tensor([0.7, 0.6, 0.4, 0.45]))
    query, key, mask = inputs(kind)
    padding = None if kind == "decoder-self" else left_padding(kind)
    gates = attention.gate().detach()
    assert (gates * (1 - gates)).any()  # some gate is neither 0 nor 1
    expected, expected_weights = gated_by_hand(attention, gates, query, key, padding, mask)
    output, weights = attention(
        query, key, key, key_padding_mask=padding, attn_mask=mask, need_head_weights=True
    )
    torch.testing.assert_close(output, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(weights, expected_weights, atol=1e-9, rtol=0)


def test_open_gates_change_nothing():
    gated, plain = make("cross", gated=True), make("cross")
    gated.gate.decide(torch.ones(HEADS))
    query, key, _ = inputs("cross")
    assert torch.equal(gated(query, key, key)[0], plain(query, key, key)[0])


def test_all_sentences_of_a_batch_share_one_draw_and_heads_do_not():
    attention = make("encoder-self", gated=True).train()
    sentence = inputs("encoder-self")[0][:, :1]
    query = sentence.expand(-1, BATCH, -1)
    torch.manual_seed(4)
    output, _ = attention(query, query, query)
    for other in range(1, BATCH):
        torch.testing.assert_close(output[:, other], output[:, 0], atol=1e-12, rtol=0)
    torch.manual_seed(4)
    gates = attention.gate().detach()
    assert gates.shape == (HEADS,)
    expected, _ = gated_by_hand(attention, gates, query, query, None, None)
    torch.testing.assert_close(output, expected, atol=1e-9, rtol=0)
    assert gates.unique().numel() > 2
    torch.manual_seed(5)
    assert not torch.equal(attention(query, query, query)[0], output)


def test_gates_get_a_gradient_through_the_output():
    attention = make("encoder-self", gated=True)
    query, key, _ = inputs("encoder-self")
    attention(query, key, key)[0].pow(2).sum().backward()
    values = attention.gate.at_evaluation()
    inside = (values > 0) & (values < 1)
    assert torch.equal(attention.gate.weight.grad != 0, inside)


@pytest.mark.parametrize("kept", [(), (2,), (0, 1), (0, 1, 2), (1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_fewer_heads_give_what_all_heads_give_with_the_gates_of_the_others_closed(
    kind, mapping, kept
):
    full = make(kind, mapping, gated=True)
    full.gate.decide(torch.tensor([head in kept for head in range(HEADS)]))
    query, key, mask = inputs(kind)
    padding = None if kind == "decoder-self" else left_padding(kind)
    options = {"key_padding_mask": padding, "attn_mask": mask, "need_head_weights": True}
    expected, expected_weights = full(query, key, key, **options)
    if kept:
        smaller = with_heads_of(full, kept, kind)
        expected_weights = expected_weights[list(kept)]
    else:
        smaller = make(kind, mapping, kept_heads=0)
        expected_weights = torch.zeros_like(expected_weights[:1])
    output, weights = smaller(query, key, key, **options)
    assert smaller.num_heads == len(kept)
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(weights, expected_weights, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kept_heads", [1, 3])
def test_fewer_heads_make_the_projections_smaller_and_start_as_the_first_heads(kept_heads):
    full, smaller = make("cross"), make("cross", kept_heads=kept_heads)
    rows = kept_heads * SIZE
    for name in ("q_proj", "k_proj", "v_proj"):
        whole, part = getattr(full, name), getattr(smaller, name)
        assert torch.equal(part.weight, whole.weight[:rows])
        assert torch.equal(part.bias, whole.bias[:rows])
        assert part.out_features == rows
    assert torch.equal(smaller.out_proj.weight, full.out_proj.weight[:, :rows])
    assert torch.equal(smaller.out_proj.bias, full.out_proj.bias)
    assert smaller.out_proj.in_features == rows
    assert all(parameter.is_leaf for parameter in smaller.parameters())


def test_an_attention_that_keeps_all_its_heads_is_the_ordinary_one():
    plain, kept = make("encoder-self"), make("encoder-self", kept_heads=HEADS)
    assert all(torch.equal(kept.state_dict()[n], v) for n, v in plain.state_dict().items())
    query, key, _ = inputs("encoder-self")
    assert torch.equal(kept(query, key, key)[0], plain(query, key, key)[0])


@pytest.mark.parametrize("kept_heads", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_of_an_attention_of_fewer_heads_gets_a_gradient(kind, kept_heads):
    attention = make(kind, kept_heads=kept_heads).train()
    query, key, _ = inputs(kind)
    attention(query, key, key)[0].pow(2).sum().backward()
    # Distributed training waits for every gradient
    assert [name for name, p in attention.named_parameters() if p.grad is None] == []
    assert attention.out_proj.bias.grad.any()


@pytest.mark.parametrize("kind", KINDS)
def test_without_heads_the_output_is_the_bias_and_the_weights_are_zeros(kind):
    attention = make(kind, kept_heads=0)
    query, key, mask = inputs(kind)
    output, mean = attention(query, key, key, attn_mask=mask)
    _, each = attention(query, key, key, need_head_weights=True)
    _, none = attention(query, key, key, need_weights=False)
    assert torch.equal(output, attention.out_proj.bias.expand(QUERIES, BATCH, WIDTH))
    keys = KEYS if kind == "cross" else QUERIES
    assert torch.equal(mean, torch.zeros(BATCH, QUERIES, keys, dtype=torch.float64))
    assert torch.equal(each, torch.zeros(1, BATCH, QUERIES, keys, dtype=torch.float64))
    assert none is None
    assert list(attention.state_dict()) == ["out_proj.bias"]


def test_without_heads_and_without_a_bias_the_output_is_zero():
    attention = MultiheadAttention(
        WIDTH, HEADS, None, kept_heads=0, bias=False, self_attention=True
    )
    query, key, _ = inputs("encoder-self", torch.float32)
    output, _ = attention(query, key, key)
    assert torch.equal(output, torch.zeros(QUERIES, BATCH, WIDTH))
    assert attention.state_dict() == {}


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("kept_heads", [0, 1, 3])
def test_decoding_step_by_step_gives_what_the_whole_target_gives(mapping, kept_heads):
    attention = make("decoder-self", mapping, kept_heads=kept_heads)
    query, _, mask = inputs("decoder-self")
    expected, _ = attention(query, query, query, attn_mask=mask)
    state = {}
    steps = [
        attention(row, row, row, incremental_state=state)[0]
        for row in query.split(1)  # one query at a time
    ]
    torch.testing.assert_close(torch.cat(steps), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("mapping", ["softmax", "entmax"])
@pytest.mark.parametrize(("kept_heads", "gated"), [(None, True), (3, False), (0, False)])
def test_one_copy_of_the_source_serves_all_hypotheses_of_a_beam(mapping, kept_heads, gated):
    beam = 3
    attention = make("cross", mapping, kept_heads=kept_heads, gated=gated)
    _, key, _ = inputs("cross")
    query = torch.randn(1, BATCH * beam, WIDTH, dtype=torch.float64)
    repeated = key.repeat_interleave(beam, dim=1)
    padding = left_padding("cross").repeat_interleave(beam, dim=0)
    options = {"key_padding_mask": padding, "need_head_weights": True}
    expected, expected_weights = attention(query, repeated, repeated, **options)
    attention.set_beam_size(beam)
    output, weights = attention(
        query, repeated, repeated, incremental_state={}, static_kv=True, **options
    )
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("kept_heads", "gated"), [(None, True), (3, False), (0, False)])
def test_half_precision_keeps_its_dtype(dtype, kept_heads, gated):
    half = make("encoder-self", kept_heads=kept_heads, gated=gated, dtype=dtype)
    wide = make("encoder-self", kept_heads=kept_heads, gated=gated, dtype=torch.float32)
    query, key, _ = inputs("encoder-self", dtype)
    output, weights = half(query, key, key)
    expected, _ = wide(query.float(), key.float(), key.float())
    assert output.dtype == dtype
    assert weights.dtype == torch.float32
    torch.testing.assert_close(output.float(), expected, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kept_heads": -1}, r"keeps 0 to 4 heads, not -1"),
        ({"kept_heads": 5}, r"keeps 0 to 4 heads, not 5"),
        ({"kept_heads": 0}, r"0 heads do not fit the mapping Entmax"),
        ({"kept_heads": 2, "mapping": None}, r"2 heads do not fit the mapping None"),
        ({"mapping": None}, r"4 heads do not fit the mapping None"),
        ({"kept_heads": 3, "gate": HardConcreteGate(4)}, r"3 heads do not fit 4 gates"),
        ({"kept_heads": 2, "add_bias_kv": True}, r"add_bias_kv keeps all its heads"),
        *(
            (
                {option: True, "mapping": parse_mappings(text)[0].build(HEADS)},
                rf"attention with {option} has a key that is no word, .*: drop {option}, or use",
            )
            for option in ("add_bias_kv", "add_zero_attn")
            for text in ("fusedmax", "entmax:oscar=learned", "sqpnormmax", "fusedmax|softmax*3")
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MultiheadAttention(WIDTH, HEADS, **{"mapping": parse_mapping("softmax").build(), **options})
