"""Attention compared with its definition, head by head: with gates, fewer heads and no heads."""

import copy
import math

import pytest
import torch
from entmax import entmax_bisect
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention
from torch import nn

from fairseq_entmax.attention import HardConcreteGate, MultiheadAttention, masks
from fairseq_entmax.mappings import parse_mappings
from tests.support import MAPPINGS

WIDTH, HEADS, BATCH, QUERIES, KEYS = 24, 4, 3, 5, 7
SIZE = WIDTH // HEADS
# Gates in evaluation: closed, between, open, between
LOG_A = [-4.0, -0.6, 5.0, 0.8]
KINDS = {
    "encoder-self": {"self_attention": True},
    "decoder-self": {"self_attention": True},
    "cross": {"encoder_decoder_attention": True},
}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_mapping = pytest.mark.parametrize("mapping", MAPPINGS)


def make(kind, mapping="entmax", dtype=torch.float64, remaining_heads=None, gated=False, **options):
    torch.manual_seed(0)
    heads = HEADS if remaining_heads is None else remaining_heads
    built = parse_mappings(mapping)[0].build(num_heads=heads) if heads else None
    gate = HardConcreteGate(heads) if gated else None
    # The same projections for every mapping and any number of heads
    torch.manual_seed(1)
    options |= {"remaining_heads": remaining_heads, "gate": gate, **KINDS[kind]}
    attention = MultiheadAttention(WIDTH, HEADS, built, **options)
    with torch.no_grad():
        attention.out_proj.bias.normal_()
        if heads:
            attention.q_proj.weight.mul_(6.0)  # scores that differ enough to give zeros
        if gated:
            gate.weight.copy_(torch.tensor(LOG_A[:heads]) / gate.lr_factor)
    return attention.to(dtype).eval()


def inputs(kind, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(QUERIES, BATCH, WIDTH, generator=generator, dtype=torch.float64)
    key = torch.randn(KEYS, BATCH, WIDTH, generator=generator, dtype=torch.float64)
    key = key if kind == "cross" else query
    mask = None
    if kind == "decoder-self":
        mask = torch.full((QUERIES, QUERIES), -math.inf, dtype=dtype).triu(1)
    return query.to(dtype), key.to(dtype), mask


def left_padding(kind):
    keys = KEYS if kind == "cross" else QUERIES
    padding = torch.zeros(BATCH, keys, dtype=torch.bool)
    padding[1, :2] = True
    return padding


def padding_of(kind):
    # With the causal mask, left padding would leave the first queries without a key
    return None if kind == "decoder-self" else left_padding(kind)


def by_hand(attention, query, key, padding, mask, gates=None):
    """Attention by its definition, one head of one sentence at a time."""
    alpha = attention.mapping.alpha
    alphas = alpha.tolist() if isinstance(alpha, torch.Tensor) else [alpha] * HEADS
    temperatures = torch.as_tensor(attention.mapping.temperature).expand(HEADS)
    q, k, v = attention.q_proj(query), attention.k_proj(key), attention.v_proj(key)
    output = torch.zeros_like(query)
    weights = torch.zeros(HEADS, BATCH, query.size(0), key.size(0), dtype=query.dtype)
    for sentence in range(BATCH):
        for head in range(HEADS):
            part = slice(head * SIZE, (head + 1) * SIZE)
            scores = q[:, sentence, part] @ k[:, sentence, part].T / math.sqrt(SIZE)
            if mask is not None:
                scores = scores + mask
            if padding is not None:
                scores = scores.masked_fill(padding[sentence], -math.inf)
            scores = scores / temperatures[head].detach()
            if alphas[head] == 1:
                probs = torch.softmax(scores, -1)
            else:
                probs = entmax_bisect(scores, alphas[head], n_iter=80)
            weights[head, sentence] = probs
            gate = 1 if gates is None else gates[head]
            output[:, sentence, part] = gate * (probs @ v[:, sentence, part])
    return attention.out_proj(output), weights


@every_mapping
def test_a_boolean_mask_hides_keys_as_in_torch(mapping):
    module = make("decoder-self", mapping)
    query, key, mask = inputs("decoder-self")
    for one in (module, torch.jit.script(module)):
        assert torch.equal(*(one(query, key, key, attn_mask=m)[0] for m in (mask, mask < 0)))


@pytest.mark.parametrize("gated", [None, "evaluation", "training"])
@every_mapping
@every_kind
def test_attention_with_and_without_gates_matches_its_definition(kind, mapping, gated):
    attention = make(kind, mapping, gated=gated is not None).train(gated == "training")
    query, key, mask = inputs(kind)
    gates = None
    if gated:
        attention.gate.use_draw(torch.tensor([0.7, 0.6, 0.4, 0.45]))
        gates = attention.gate().detach()
        assert (gates * (1 - gates)).any()  # some gate is neither 0 nor 1
    expected, expected_weights = by_hand(attention, query, key, padding_of(kind), mask, gates)
    given = {"key_padding_mask": padding_of(kind), "attn_mask": mask}
    output, weights = attention(query, key, key, **given, need_head_weights=True)
    torch.testing.assert_close(weights, expected_weights, atol=1e-9, rtol=0)
    torch.testing.assert_close(output, expected, atol=1e-9, rtol=0)
    _, mean = attention(query, key, key, **given)
    torch.testing.assert_close(mean, weights.mean(0))
    assert attention(query, key, key, **given, need_weights=False)[1] is None
    if kind == "cross" and mapping != "softmax":
        assert (weights[:, 0] == 0).any()


@pytest.mark.parametrize("mapping", ["softmax", "softmax:temperature=1"])
@every_kind
def test_softmax_is_bitwise_fairseqs_attention(kind, mapping):
    query, key, mask = inputs(kind, torch.float32)
    ours = make(kind, mapping, torch.float32)
    stock = FairseqMultiheadAttention(WIDTH, HEADS, **KINDS[kind]).eval()
    stock.load_state_dict(ours.state_dict())
    for padding in {None, padding_of(kind)}:
        for need_weights in (False, True):
            results = [
                module(query, key, key, padding, attn_mask=mask, need_weights=need_weights)
                for module in (ours, stock)
            ]
            assert torch.equal(results[0][0], results[1][0])
            assert (results[0][1] is None) is not need_weights
    seen = []
    with ours.observed(seen.append):
        output, _ = ours(query, key, key, attn_mask=mask, need_weights=False)
    assert seen[0].shape == (BATCH, HEADS, QUERIES, key.size(0))
    expected = stock(query, key, key, attn_mask=mask)[0]
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-6)


@every_mapping
def test_a_query_with_every_key_masked_gets_the_bias_and_no_nan(mapping):
    attention = make("encoder-self", mapping)
    query, _, _ = inputs("encoder-self")
    query.requires_grad_()
    padding = torch.zeros(BATCH, QUERIES, dtype=torch.bool)
    padding[0] = True
    output, _ = attention(query, query, query, key_padding_mask=padding)
    bias = attention.out_proj.bias.expand(QUERIES, WIDTH)
    torch.testing.assert_close(output[:, 0], bias, atol=0, rtol=0)
    output.sum().backward()
    assert query.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in attention.parameters() if p.grad is not None)


def test_dropout_acts_on_the_weights_in_training_only():
    attention = make("cross", dropout=0.3)
    query, key, _ = inputs("cross")
    plain, weights = attention(query, key, key, need_head_weights=True)
    torch.testing.assert_close(plain, by_hand(attention, query, key, None, None)[0])
    torch.manual_seed(0)
    output, same = attention.train()(query, key, key, need_head_weights=True)
    torch.testing.assert_close(same, weights)
    torch.manual_seed(0)
    dropped = nn.functional.dropout(weights.transpose(0, 1), 0.3)
    values = attention.v_proj(key).view(KEYS, BATCH, HEADS, SIZE)
    heads = torch.einsum("bhqk,kbhd->qbhd", dropped, values).reshape(QUERIES, BATCH, WIDTH)
    torch.testing.assert_close(output, attention.out_proj(heads))


def test_returned_scores_are_those_that_the_mapping_receives():
    attention = make("cross", "entmax15|softmax:temperature=3*3")
    attention.scores_of = (2,)
    query, key, _ = inputs("cross")
    weights, (scores,) = attention(query, key, key, need_head_weights=True)[1].split(HEADS)
    torch.testing.assert_close(weights[2], scores.softmax(-1), atol=1e-7, rtol=0)


def with_heads_of(full, heads, kind):
    """Attention with the given heads of another attention, in that order."""
    state = full.state_dict()
    rows = torch.cat([torch.arange(head * SIZE, (head + 1) * SIZE) for head in heads])
    for name in ("q_proj", "k_proj", "v_proj"):
        for part in ("weight", "bias"):
            state[f"{name}.{part}"] = state[f"{name}.{part}"][rows]
    state["out_proj.weight"] = state["out_proj.weight"][:, rows]
    mapping = copy.deepcopy(full.mapping)
    mapping.keep_heads(heads)
    state |= {f"mapping.{name}": value for name, value in mapping.state_dict().items()}
    smaller = MultiheadAttention(WIDTH, HEADS, mapping, remaining_heads=len(heads), **KINDS[kind])
    smaller.double().load_state_dict({k: v for k, v in state.items() if not k.startswith("gate.")})
    return smaller.eval()


@pytest.mark.parametrize("remaining", [(), (2,), (1, 3), (0, 1, 2, 3)])
@every_mapping
@every_kind
def test_fewer_heads_match_all_heads_with_the_other_gates_closed(kind, mapping, remaining):
    full = make(kind, mapping, gated=True)
    full.gate.decide(torch.tensor([head in remaining for head in range(HEADS)]))
    query, key, mask = inputs(kind)
    given = {"key_padding_mask": padding_of(kind), "attn_mask": mask, "need_head_weights": True}
    expected, expected_weights = full(query, key, key, **given)
    if remaining:
        smaller = with_heads_of(full, remaining, kind)
        expected_weights = expected_weights[list(remaining)]
    else:
        smaller = make(kind, mapping, remaining_heads=0)
        expected_weights = torch.zeros_like(expected_weights[:1])
    output, weights = smaller(query, key, key, **given)
    assert smaller.num_heads == len(remaining)
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(weights, expected_weights, atol=1e-12, rtol=0)


@pytest.mark.parametrize("remaining_heads", [1, 3])
def test_fewer_heads_have_smaller_projections_initialised_as_the_first_heads(remaining_heads):
    full, smaller = make("cross"), make("cross", remaining_heads=remaining_heads)
    rows = remaining_heads * SIZE
    for name in ("q_proj", "k_proj", "v_proj"):
        whole, part = getattr(full, name), getattr(smaller, name)
        assert torch.equal(part.weight, whole.weight[:rows])
        assert torch.equal(part.bias, whole.bias[:rows])
        assert part.out_features == rows
    assert torch.equal(smaller.out_proj.weight, full.out_proj.weight[:, :rows])
    assert smaller.out_proj.in_features == rows
    assert all(parameter.is_leaf for parameter in smaller.parameters())


@every_kind
def test_without_heads_the_output_is_the_bias_and_the_weights_are_zeros(kind):
    attention = make(kind, remaining_heads=0)
    query, key, mask = inputs(kind)
    output, mean = attention(query, key, key, attn_mask=mask)
    assert torch.equal(output, attention.out_proj.bias.expand(QUERIES, BATCH, WIDTH))
    assert torch.equal(mean, torch.zeros(BATCH, QUERIES, key.size(0), dtype=torch.float64))
    assert attention(query, key, key, need_weights=False)[1] is None
    assert list(attention.state_dict()) == ["out_proj.bias"]
    empty = MultiheadAttention(WIDTH, HEADS, None, remaining_heads=0, bias=False, **KINDS[kind])
    assert torch.equal(empty(query, key, key)[0], torch.zeros(QUERIES, BATCH, WIDTH))
    assert empty.state_dict() == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("mapping", "heads", "gated"),
    [("entmax", None, True), ("softmax:temperature=learned", 3, False), ("entmax", 0, False)],
)
def test_half_precision_keeps_its_dtype_and_maps_in_float32(dtype, mapping, heads, gated):
    half, full = (
        make("encoder-self", mapping, kind, heads, gated) for kind in (dtype, torch.float32)
    )
    query, key, _ = inputs("encoder-self", dtype)
    output, weights = half(query, key, key)
    expected, _ = full(query.float(), key.float(), key.float())
    assert output.dtype == half(query, key, key, need_weights=False)[0].dtype == dtype
    assert weights.dtype == torch.float32
    if heads != 0:
        sums = torch.ones(BATCH, QUERIES)
        torch.testing.assert_close(weights.sum(-1), sums, atol=1e-5, rtol=0)
    torch.testing.assert_close(output.float(), expected, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("mapping", "options", "message"),
    [
        ("softmax", {"remaining_heads": 5}, r"can keep 0 to 4 heads, not 5"),
        ("softmax", {"remaining_heads": 0}, r"0 heads do not match the mapping Entmax"),
        (None, {}, r"4 heads do not match the mapping None"),
        ("softmax", {"remaining_heads": 3, "gate": HardConcreteGate(4)}, r"3 heads do not match 4"),
        ("softmax", {"add_bias_kv": True}, r"add_bias_kv and .* a key that is not a token: leave"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(mapping, options, message):
    built = mapping and parse_mappings(mapping)[0].build(HEADS)
    with pytest.raises(ValueError, match=message):
        MultiheadAttention(WIDTH, HEADS, built, **options)


def future(length):
    return torch.full((length, length), -torch.inf).triu(1)


@pytest.mark.parametrize(
    ("padding", "mask", "expected"),
    [
        (None, None, True),
        (torch.tensor(False), None, True),  # fairseq's way to say that there is no padding
        ([[True, False, False]], None, True),
        ([[True, False, False], [True, True, True]], None, False),
        ([[False, False, True]], future(3), True),
        ([[True, False, False]], future(3), False),  # the first query sees only the first key
        (None, future(3).T, False),  # this mask is not examined further
        (None, future(3).bool(), False),
    ],
)
def test_masks_tell_whether_every_query_keeps_a_key(padding, mask, expected):
    padding = torch.tensor(padding) if isinstance(padding, list) else padding
    assert masks.every_query_has_a_key(padding, mask) is expected


@pytest.mark.parametrize("mapping", ["softmax", "entmax"])
@pytest.mark.parametrize("is_step", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@torch.no_grad()
def test_several_targets_can_share_one_source(mapping, is_step, need_weights):
    attention = make("cross", mapping, torch.float32)
    query, key, _ = inputs("cross", torch.float32)
    found = []
    for source in (key[:, :1], key[:, :1].expand(-1, BATCH, -1)):
        given = {"static_kv": True, "incremental_state": {} if is_step else None}
        found.append(attention(query[:1], source, source, need_weights=need_weights, **given))
    torch.testing.assert_close(found[0], found[1], atol=1e-6, rtol=0)
