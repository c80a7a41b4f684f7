"""Decoding steps that are one kernel call, compared with fairseq's steps and the same attention."""

import copy
from contextlib import nullcontext

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.attention import HardConcreteGate, MultiheadAttention
from fairseq_entmax.attention.kv_cache import HypothesesCache, SourceCache
from fairseq_entmax.mappings import parse_mappings
from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler

# Heads of width 20, which is not a multiple of any vector width
WIDTH, HEADS = 80, 4
HOT = "entmax:temperature=2|softmax:temperature=3|entmax15:temperature=learned*2"
# Two sentences, one after the other has finished, and more hypotheses than before
ORDERS = ([0, 0, 1, 5, 3, 4], [1, 2, 0, 3, 3, 5], [2, 0, 0], [1, 1, 2, 0, 2, 2, 1, 0])
# fairseq never moves a source's cache to another sentence
OF_SOURCE = ([0, 0, 1, 5, 3, 4], [3, 5, 5], [2, 1, 0])
both_kinds = pytest.mark.parametrize("kind", ["self", "cross"])


def make(kind, mapping="entmax", remaining_heads=None, gated=False):
    torch.manual_seed(0)
    heads = remaining_heads or HEADS
    gate = HardConcreteGate(heads) if gated else None
    built = parse_mappings(mapping)[0].build(num_heads=heads)
    options = {"self_attention": kind == "self", "encoder_decoder_attention": kind == "cross"}
    attention = MultiheadAttention(WIDTH, HEADS, built, remaining_heads=heads, gate=gate, **options)
    with torch.no_grad():
        attention.q_proj.weight.mul_(6.0)  # scores far enough apart for zeros
    return attention.eval()


@torch.no_grad()
def decoded(attention, orders, source=None, padding=None, per_order=4, **options):
    """Outputs and weights of random queries, several steps before each reordering, and the state."""
    generator = torch.Generator().manual_seed(1)
    hypotheses, state, results = len(orders[0]), {}, []
    for order in (*orders, None):
        for _ in range(per_order):
            query = torch.randn(1, hypotheses, WIDTH, generator=generator)
            key = query if source is None else source
            how = {"incremental_state": state, "static_kv": source is not None, **options}
            results.append(attention(query, key, key, key_padding_mask=padding, **how))
        if order is not None:
            attention.reorder_incremental_state(state, torch.tensor(order))
            hypotheses = len(order)
            if source is not None:
                source = source[:, order]
                padding = None if padding is None else padding[order]
    return results, state


def by_fairseq(attention, *arguments, **options):
    """The same without the kernel for decoding steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "step_for", lambda query: None)
        return decoded(attention, *arguments, **options)


def cache_of(attention, state):
    return attention.get_incremental_state(state, "attn_state")


def beams(kind="cross", number=2, beam=3, length=9):
    """A padded source of several sentences, repeated for the beam; none for self-attention."""
    if kind == "self":
        return None, None
    generator = torch.Generator().manual_seed(2)
    source = torch.randn(length, number, WIDTH, generator=generator)
    padding = torch.zeros(number, length, dtype=torch.bool)
    padding[0, :3] = True
    return source.repeat_interleave(beam, 1), padding.repeat_interleave(beam, 0)


@pytest.mark.parametrize(
    ("mapping", "heads", "per_order"),
    [
        *((mapping, {}, 4) for mapping in ("entmax15", "sparsemax", "sparsemax|softmax*3", HOT)),
        *(("entmax", {"remaining_heads": heads, "gated": heads != 1}, 4) for heads in (None, 1, 3)),
        ("entmax", {}, 25),  # so many steps that the target's cache grows
    ],
)
@pytest.mark.parametrize("case", ["self", "cross", "cross with padding"])
def test_kernel_steps_match_fairseqs_steps(mapping, heads, per_order, case):
    kind = case[:5].strip()
    attention, (source, padding) = make(kind, mapping, **heads), beams(kind)
    given = (ORDERS if kind == "self" else OF_SOURCE, source, padding if "with" in case else None)
    for options in ({"need_weights": False}, {"need_head_weights": True}, {}):
        results, state = decoded(attention, *given, per_order=per_order, **options)
        expected = by_fairseq(attention, *given, per_order=per_order, **options)[0]
        assert isinstance(cache_of(attention, state), (HypothesesCache, SourceCache))
        for one, other in zip(results, expected, strict=True):
            if other[1] is None:
                assert one[1] is None
                one, other = one[:1], other[:1]
            torch.testing.assert_close(one, other, atol=4e-6, rtol=0)


@both_kinds
def test_the_cache_reads_like_fairseqs(kind):
    attention = make(kind)
    given = ([[1, 0, 0, 5, 3, 4]], *beams(kind))
    caches = [cache_of(attention, run(attention, *given)[1]) for run in (decoded, by_fairseq)]
    assert "prev_key" in caches[0]
    for name in ("prev_key", "prev_value"):
        torch.testing.assert_close(caches[0][name], caches[1][name], atol=1e-6, rtol=0)
    padding = [cache.get("prev_key_padding_mask") for cache in caches]
    assert padding[1] is None if padding[0] is None else torch.equal(*padding)


@both_kinds
@torch.no_grad()
def test_a_search_may_alternate_between_kernel_and_fairseqs_steps(kind):
    attention, (source, _) = make(kind), beams(kind)
    query = torch.randn(5, 6, WIDTH, generator=torch.Generator().manual_seed(3))
    runs = []
    for observed in ((), (1, 2, 4)):
        state, outputs = {}, []
        for number, row in enumerate(query.split(1)):
            key = row if kind == "self" else source
            options = {"incremental_state": state, "static_kv": kind == "cross"}
            # Observed weights are computed in fairseq's way
            seen = attention.observed(lambda probs: None) if number in observed else nullcontext()
            with seen:
                outputs.append(attention(row, key, key, **options)[0])
            attention.reorder_incremental_state(state, torch.tensor([1, 0, 2, 5, 5, 3]))
        runs.append(torch.cat(outputs))
    torch.testing.assert_close(*runs, atol=2e-6, rtol=0)


@torch.no_grad()
def test_padding_in_the_target_is_handled_as_in_fairseq():
    attention, query = make("self"), torch.randn(3, 2, WIDTH)
    state, outputs = {}, []
    padding = [None, torch.tensor([[False], [True]]), None]
    for row, own in zip(query.split(1), padding, strict=True):
        outputs.append(attention(row, row, row, own, incremental_state=state)[0])
    mask = torch.full((3, 3), -torch.inf).triu(1)
    is_padding = torch.tensor([[False, False, False], [False, True, False]])
    expected, _ = attention(query, query, query, is_padding, attn_mask=mask)
    torch.testing.assert_close(torch.cat(outputs), expected, atol=2e-6, rtol=0)


def test_what_the_kernel_lacks_is_left_to_fairseqs_steps(monkeypatch):
    monkeypatch.setattr(kernels, "step_for", lambda query: pytest.fail("more than a plain step"))
    attention, query = make("self"), torch.randn(2, 3, WIDTH)

    def step(number=1, **options):
        row = query[:number]
        attention(row, row, row, incremental_state={}, **options)

    step()  # with a gradient
    with torch.no_grad():
        step(2)
        step(before_softmax=True)
        step(attn_mask=torch.zeros(1, 1))
        with torch.autocast("cpu", torch.bfloat16):
            step()
        attention.scores_of = (0,)
        step(need_head_weights=True)
        attention.dropout_module.p, attention.dropout_module.apply_during_inference = 0.5, True
        step()
        attention.dropout_module.p = 0.0
        attention.train()
        step()


def test_a_source_is_projected_once_for_its_beam_unless_its_padding_differs():
    attention, rows = make("cross"), []
    attention.k_proj.register_forward_hook(lambda module, given, _: rows.append(given[0].size(1)))
    source, padding = beams()
    decoded(attention, [list(range(6))], source, padding)
    padding[1, -1] = True
    decoded(attention, [list(range(6))], source, padding)
    assert rows == [2, 4]


@both_kinds
@torch.no_grad()
def test_a_copied_state_is_independent_of_the_original(kind):
    attention, (source, padding) = make(kind), beams(kind)
    _, state = decoded(attention, [list(range(6))], source, padding)
    row, other = torch.randn(2, 1, 6, WIDTH)
    key = row if kind == "self" else source

    def go_on(state, row):
        return attention(row, key, key, incremental_state=state, static_kv=kind == "cross")[0]

    copied, expected = copy.deepcopy(state), go_on(copy.deepcopy(state), row)
    go_on(copied, other)
    assert torch.equal(go_on(state, row), expected)
