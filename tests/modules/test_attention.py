import math

import pytest
import torch
from entmax import entmax_bisect
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention

from fairseq_entmax.mappings import parse_mappings
from fairseq_entmax.modules import MultiheadAttention, masks
from tests.support import MAPPINGS

WIDTH, HEADS, BATCH, QUERIES, KEYS = 24, 4, 3, 5, 7

KINDS = {
    "encoder-self": {"self_attention": True},
    "decoder-self": {"self_attention": True},
    "cross": {"encoder_decoder_attention": True},
}


def make(kind, mapping="entmax", dtype=torch.float64, **options):
    torch.manual_seed(0)
    (spec,) = parse_mappings(mapping)
    module = spec.build(num_heads=HEADS)
    attention = MultiheadAttention(WIDTH, HEADS, module, **KINDS[kind], **options)
    with torch.no_grad():
        attention.q_proj.weight.mul_(6.0)  # scores far enough apart for zeros
    return attention.to(dtype).eval()


def make_stock(kind, attention, **options):
    stock = FairseqMultiheadAttention(WIDTH, HEADS, **KINDS[kind], **options)
    weights = {k: v for k, v in attention.state_dict().items() if not k.startswith("mapping")}
    stock.load_state_dict(weights)
    return stock.to(next(attention.parameters()).dtype).eval()


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


def by_hand(attention, query, key, padding, mask, alphas):
    """Attention by its definition, one head of one sentence at a time."""
    size = WIDTH // HEADS
    q, k, v = attention.q_proj(query), attention.k_proj(key), attention.v_proj(key)
    output = torch.zeros_like(query)
    weights = torch.zeros(HEADS, BATCH, query.size(0), key.size(0), dtype=query.dtype)
    for sentence in range(BATCH):
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = q[:, sentence, part] @ k[:, sentence, part].T / math.sqrt(size)
            if mask is not None:
                scores = scores + mask
            if padding is not None:
                scores = scores.masked_fill(padding[sentence], -math.inf)
            if alphas[head] == 1:
                probs = torch.softmax(scores, -1)
            else:
                probs = entmax_bisect(scores, alphas[head], n_iter=80)
            weights[head, sentence] = probs
            output[:, sentence, part] = probs @ v[:, sentence, part]
    return attention.out_proj(output), weights


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_what_its_definition_says(kind, mapping, padded):
    attention = make(kind, mapping)
    query, key, mask = inputs(kind)
    # With the causal mask, left padding would leave the first queries without any key
    padding = left_padding(kind) if padded and kind != "decoder-self" else None
    alpha = attention.mapping.alpha
    alphas = alpha.tolist() if isinstance(alpha, torch.Tensor) else [alpha] * HEADS
    expected, expected_weights = by_hand(attention, query, key, padding, mask, alphas)
    output, weights = attention(
        query, key, key, key_padding_mask=padding, attn_mask=mask, need_head_weights=True
    )
    torch.testing.assert_close(weights, expected_weights, atol=1e-9, rtol=0)
    torch.testing.assert_close(output, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_softmax_gives_what_fairseq_gives(kind, padded):
    attention = make(kind, "softmax", torch.float32)
    stock = make_stock(kind, attention)
    query, key, mask = inputs(kind, torch.float32)
    options = {
        "key_padding_mask": left_padding(kind) if padded and kind != "decoder-self" else None,
        "attn_mask": mask,
    }
    output, weights = attention(query, key, key, **options)
    expected, expected_weights = stock(query, key, key, **options)
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(weights, expected_weights, atol=1e-6, rtol=1e-6)


def test_weights_are_the_mean_of_the_head_weights_and_absent_unless_asked_for():
    attention = make("encoder-self")
    query, key, _ = inputs("encoder-self")
    _, each = attention(query, key, key, need_head_weights=True)
    _, mean = attention(query, key, key, need_weights=True)
    _, none = attention(query, key, key, need_weights=False)
    assert each.shape == (HEADS, BATCH, QUERIES, QUERIES)
    torch.testing.assert_close(mean, each.mean(0))
    assert none is None


@pytest.mark.parametrize("mapping", ["sparsemax", "entmax15", "entmax"])
def test_sparse_mappings_leave_keys_at_exactly_zero(mapping):
    attention = make("cross", mapping, torch.float32)
    query, key, _ = inputs("cross", torch.float32)
    _, weights = attention(query, key, key, need_head_weights=True)
    assert (weights == 0).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(HEADS, BATCH, QUERIES))


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(mapping, side):
    attention = make("cross", mapping)
    query, key, _ = inputs("cross")
    plain, _ = attention(query, key, key)
    noise = torch.full((2, BATCH, WIDTH), 3.0, dtype=key.dtype)
    padding = torch.zeros(BATCH, KEYS + 2, dtype=torch.bool)
    if side == "left":
        padded_key = torch.cat([noise, key])
        padding[:, :2] = True
    else:
        padded_key = torch.cat([key, noise])
        padding[:, -2:] = True
    output, weights = attention(
        query, padded_key, padded_key, key_padding_mask=padding, need_head_weights=True
    )
    torch.testing.assert_close(output, plain, atol=1e-12, rtol=1e-12)
    assert (weights.masked_select(padding[None, :, None, :]) == 0).all()


@pytest.mark.parametrize("mapping", MAPPINGS)
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


def test_dropout_acts_on_the_weights_in_training_only_and_not_on_those_returned():
    attention = make("encoder-self", dropout=0.5)
    query, key, _ = inputs("encoder-self")
    plain, plain_weights = attention(query, key, key)
    attention.train()
    torch.manual_seed(3)
    once, once_weights = attention(query, key, key)
    torch.manual_seed(3)
    again, _ = attention(query, key, key)
    torch.manual_seed(4)
    other, _ = attention(query, key, key)
    torch.testing.assert_close(once, again, atol=0, rtol=0)
    assert not torch.allclose(once, plain)
    assert not torch.allclose(once, other)
    torch.testing.assert_close(once_weights, plain_weights)


def test_dropout_keeps_the_expected_output():
    attention = make("encoder-self", dropout=0.3)
    query, key, _ = inputs("encoder-self")
    expected, _ = attention(query, key, key)
    attention.train()
    torch.manual_seed(0)
    with torch.no_grad():
        outputs = torch.stack([attention(query, key, key)[0] for _ in range(3000)])
    error = outputs.std(0) / math.sqrt(3000)
    assert ((outputs.mean(0) - expected).abs() < 6 * error + 1e-9).all()


@pytest.mark.parametrize("mapping", ["softmax", "entmax"])
def test_one_copy_of_the_source_serves_all_hypotheses_of_a_beam(mapping):
    beam = 3
    attention = make("cross", mapping)
    _, key, _ = inputs("cross")
    query = torch.randn(1, BATCH * beam, WIDTH, dtype=torch.float64)
    repeated = key.repeat_interleave(beam, dim=1)
    padding = left_padding("cross").repeat_interleave(beam, dim=0)
    expected, expected_weights = attention(
        query, repeated, repeated, key_padding_mask=padding, need_head_weights=True
    )
    attention.set_beam_size(beam)
    output, weights = attention(
        query,
        repeated,
        repeated,
        key_padding_mask=padding,
        incremental_state={},
        static_kv=True,
        need_head_weights=True,
    )
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_dtype_and_maps_in_float32(dtype):
    attention = make("encoder-self", "entmax", dtype)
    query, key, _ = inputs("encoder-self", dtype)
    output, weights = attention(query, key, key, need_head_weights=True)
    assert output.dtype == dtype
    assert weights.dtype == torch.float32
    torch.testing.assert_close(
        weights.sum(-1), torch.ones(HEADS, BATCH, QUERIES), atol=1e-5, rtol=0
    )
    wide = make("encoder-self", "entmax", torch.float32)
    expected, _ = wide(query.float(), key.float(), key.float())
    torch.testing.assert_close(output.float(), expected, atol=0.05, rtol=0.05)


def test_scores_and_values_are_handed_back_on_request():
    attention = make("encoder-self")
    query, key, _ = inputs("encoder-self")
    scores, values = attention(query, key, key, before_softmax=True)
    assert scores.shape == (BATCH * HEADS, QUERIES, QUERIES)
    assert values.shape == (BATCH * HEADS, QUERIES, WIDTH // HEADS)


def test_xformers_is_refused_because_it_would_bypass_the_mapping():
    with pytest.raises(ValueError, match=r"--encoder-xformers-att-config.*mapping"):
        make("encoder-self", xformers_att_config="{'name': 'scaled_dot_product'}")


def test_every_parameter_gets_a_gradient():
    attention = make("encoder-self")
    query, key, _ = inputs("encoder-self")
    attention(query, key, key)[0].pow(2).sum().backward()
    without = [n for n, p in attention.named_parameters() if p.grad is None or not p.grad.any()]
    # a bias of the keys shifts all scores of a query alike, which no mapping notices
    assert [name for name in without if name != "k_proj.bias"] == []


# Softmax without anything else


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pads", [False, True])
def test_softmax_alone_is_fairseqs_own_attention_to_the_bit(kind, pads):
    query, key, mask = inputs(kind, torch.float32)
    padding = left_padding(kind) if pads and mask is None else None
    ours = make(kind, "softmax", torch.float32)
    stock = make_stock(kind, ours)
    for need_weights in (False, True):
        results = [
            module(query, key, key, padding, attn_mask=mask, need_weights=need_weights)
            for module in (ours, stock)
        ]
        assert torch.equal(results[0][0], results[1][0])
        assert (results[0][1] is None) is not need_weights
    assert ours.skip_embed_dim_check  # as the next call may need the weights of each head


def test_who_watches_softmax_sees_its_weights():
    module = make("encoder-self", "softmax", torch.float32)
    query, key, _ = inputs("encoder-self", torch.float32)
    seen = []
    with module.observed(seen.append):
        output, _ = module(query, key, key, need_weights=False)
    assert seen[0].shape == (BATCH, HEADS, QUERIES, QUERIES)
    torch.testing.assert_close(output, module(query, key, key, need_weights=False)[0])


def future(length):
    return torch.full((length, length), -torch.inf).triu(1)


@pytest.mark.parametrize(
    ("padding", "mask", "expected"),
    [
        (None, None, True),
        (torch.tensor(False), None, True),  # fairseq's way to say that there is none
        ([[True, False, False]], None, True),
        ([[True, False, False], [True, True, True]], None, False),
        ([[False, False, True]], future(3), True),
        ([[True, False, False]], future(3), False),  # the first query sees the first key alone
        (None, future(3).T, False),  # not looked at any further
        (None, future(3).bool(), False),
    ],
)
def test_whether_each_query_is_left_a_key(padding, mask, expected):
    padding = torch.tensor(padding) if isinstance(padding, list) else padding
    assert masks.leave_each_query_a_key(padding, mask) is expected
