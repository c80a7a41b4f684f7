"""Steps of decoding in one call of a kernel, against fairseq's way with the same attention."""

import copy

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.mappings import parse_mappings
from fairseq_entmax.modules import HardConcreteGate, MultiheadAttention
from fairseq_entmax.modules.step_caches import HypothesesCache, SourceCache
from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler

WIDTH, HEADS = 32, 4
MAPPINGS = ["entmax", "entmax15", "sparsemax", "sparsemax|softmax*3"]
# Hypotheses of two sentences, of one as the other finishes, and of more than there were
ORDERS = ([0, 0, 1, 5, 3, 4], [1, 2, 0, 3, 3, 5], [2, 0, 0], [1, 1, 2, 0, 2, 2, 1, 0])


def make(kind, mapping="entmax", kept_heads=None, gated=False):
    torch.manual_seed(0)
    heads = kept_heads or HEADS
    gate = HardConcreteGate(heads) if gated else None
    built = parse_mappings(mapping)[0].build(num_heads=heads)
    options = {"self_attention": kind == "self", "encoder_decoder_attention": kind == "cross"}
    attention = MultiheadAttention(WIDTH, HEADS, built, kept_heads=kept_heads, gate=gate, **options)
    with torch.no_grad():
        attention.q_proj.weight.mul_(6.0)  # scores far enough apart for zeros
    return attention.eval()


def decoded(attention, orders, source=None, padding=None, per_order=4, **options):
    """Outputs and weights of random queries, some steps before each reordering, and the state."""
    generator = torch.Generator().manual_seed(1)
    hypotheses, state, results = len(orders[0]), {}, []
    with torch.no_grad():
        for order in (*orders, None):
            for _ in range(per_order):
                query = torch.randn(1, hypotheses, WIDTH, generator=generator)
                key = query if source is None else source
                results.append(
                    attention(
                        *(query, key, key),
                        key_padding_mask=padding,
                        incremental_state=state,
                        static_kv=source is not None,
                        **options,
                    )
                )
            if order is not None:
                attention.reorder_incremental_state(state, torch.tensor(order))
                hypotheses = len(order)
                if source is not None:
                    source = source[:, order]
                    padding = None if padding is None else padding[order]
    return results, state


def by_fairseq(attention, *arguments, **options):
    """The same without a kernel for steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "step_for", lambda query: None)
        return decoded(attention, *arguments, **options)


def cache_of(attention, state):
    return attention.get_incremental_state(state, "attn_state")


def beams(number=2, beam=3, length=9):
    """A source of some sentences with padding, repeated for beams."""
    generator = torch.Generator().manual_seed(2)
    source = torch.randn(length, number, WIDTH, generator=generator)
    padding = torch.zeros(number, length, dtype=torch.bool)
    padding[0, :3] = True
    return source.repeat_interleave(beam, 1), padding.repeat_interleave(beam, 0)


def assert_same(results, expected):
    for (output, weights), (other, other_weights) in zip(results, expected, strict=True):
        torch.testing.assert_close(output, other, atol=4e-6, rtol=0)
        if other_weights is None:
            assert weights is None
        else:
            torch.testing.assert_close(weights, other_weights, atol=3e-6, rtol=0)


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("case", ["self", "cross", "cross with padding"])
def test_steps_give_what_fairseqs_way_gives(mapping, case):
    attention = make(case[:5].strip(), mapping)
    source, padding = beams()
    given = (ORDERS,)
    if case != "self":
        # fairseq moves no cache from sentence to sentence
        orders = [[0, 0, 1, 5, 3, 4], [3, 5, 5], [2, 1, 0]]
        given = (orders, source, padding if case == "cross with padding" else None)
    for options in ({"need_weights": False}, {"need_head_weights": True}, {}):
        results, state = decoded(attention, *given, **options)
        kind = HypothesesCache if case == "self" else SourceCache
        assert isinstance(cache_of(attention, state), kind)
        assert_same(results, by_fairseq(attention, *given, **options)[0])


@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize(("kept_heads", "gated"), [(1, False), (None, True), (3, True)])
def test_fewer_heads_and_gates_give_what_fairseqs_way_gives(kind, kept_heads, gated):
    attention = make(kind, kept_heads=kept_heads, gated=gated)
    given = (ORDERS[:1], *(beams() if kind == "cross" else (None, None)))
    results, _ = decoded(attention, *given, need_head_weights=True)
    assert_same(results, by_fairseq(attention, *given, need_head_weights=True)[0])


def test_a_cache_grows_with_the_target():
    attention = make("self")
    results, _ = decoded(attention, ORDERS, per_order=25)
    assert_same(results, by_fairseq(attention, ORDERS, per_order=25)[0])


@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("beam", [1, 3])
def test_the_cache_reads_as_fairseqs(kind, beam):
    attention = make(kind)
    attention.set_beam_size(beam)
    orders = [[1, 0, 0, 5, 3, 4]]
    given = (orders, *(beams() if kind == "cross" else (None, None)))
    caches = [cache_of(attention, run(attention, *given)[1]) for run in (decoded, by_fairseq)]
    assert "prev_key" in caches[0]
    for name in ("prev_key", "prev_value"):
        torch.testing.assert_close(caches[0][name], caches[1][name], atol=1e-6, rtol=0)
    padding = [cache.get("prev_key_padding_mask") for cache in caches]
    assert padding[1] is None if padding[0] is None else torch.equal(*padding)


@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_search_may_change_between_the_ways(kind, beam):
    attention = make(kind)
    attention.set_beam_size(beam)
    source, _ = beams()
    query = torch.randn(5, 6, WIDTH, generator=torch.Generator().manual_seed(3))
    runs = []
    for watched in ((), (1, 2, 4)):
        state, outputs = {}, []
        for number, row in enumerate(query.split(1)):
            key = row if kind == "self" else source
            options = {"incremental_state": state, "static_kv": kind == "cross"}
            with torch.no_grad():
                if number in watched:
                    with attention.observed(lambda probs: None):
                        outputs.append(attention(row, key, key, **options)[0])
                else:
                    outputs.append(attention(row, key, key, **options)[0])
            attention.reorder_incremental_state(state, torch.tensor([1, 0, 2, 5, 5, 3]))
        runs.append(torch.cat(outputs))
    torch.testing.assert_close(*runs, atol=2e-6, rtol=0)


def test_padding_in_the_target_goes_fairseqs_way():
    attention = make("self")
    query = torch.randn(3, 2, WIDTH)
    state, outputs = {}, []
    padding = [None, torch.tensor([[False], [True]]), None]
    for row, own in zip(query.split(1), padding, strict=True):
        with torch.no_grad():
            outputs.append(attention(row, row, row, own, incremental_state=state)[0])
    mask = torch.full((3, 3), -torch.inf).triu(1)
    is_padding = torch.tensor([[False, False, False], [False, True, False]])
    with torch.no_grad():
        expected, _ = attention(query, query, query, is_padding, attn_mask=mask)
    torch.testing.assert_close(torch.cat(outputs), expected, atol=2e-6, rtol=0)


def test_a_source_is_projected_once_for_its_beam_unless_its_padding_differs():
    attention = make("cross")
    rows = []
    attention.k_proj.register_forward_hook(lambda module, given, _: rows.append(given[0].size(1)))
    source, padding = beams(number=2, beam=3)
    decoded(attention, [list(range(6))], source, padding)
    padding[1, -1] = True
    decoded(attention, [list(range(6))], source, padding)
    assert rows == [2, 4]


@pytest.mark.parametrize("kind", ["self", "cross"])
def test_a_copy_of_a_state_goes_on_by_itself(kind):
    attention = make(kind)
    source, padding = beams()
    given = (None, None) if kind == "self" else (source, padding)
    _, state = decoded(attention, [list(range(6))], *given)
    row, other = torch.randn(2, 1, 6, WIDTH)
    key = row if kind == "self" else source

    def go_on(state, row):
        with torch.no_grad():
            return attention(row, key, key, incremental_state=state, static_kv=kind == "cross")[0]

    copied, expected = copy.deepcopy(state), go_on(copy.deepcopy(state), row)
    go_on(copied, other)
    assert torch.equal(go_on(state, row), expected)


def test_softmax_asks_for_no_kernel(monkeypatch):
    monkeypatch.setattr(kernels, "step_for", lambda query: pytest.fail("it did"))
    for kind in ("self", "cross"):
        given = beams() if kind == "cross" else (None, None)
        results, _ = decoded(make(kind, "softmax"), [list(range(6))], *given)
        assert all(output.isfinite().all() for output, _ in results)
