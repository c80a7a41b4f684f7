"""Steps of decoding by the Triton kernel, in its interpreter, against fairseq's way."""

import importlib

import pytest
import torch

from fairseq_entmax import kernels
from tests.modules.test_incremental import ORDERS, assert_same, beams, cache_of, decoded, make

pytest.importorskip("triton")
if torch.cuda.is_available():
    pytest.skip(
        "these modules are on the CPU, where Triton runs in its interpreter alone",
        allow_module_level=True,
    )


@pytest.fixture
def calls(monkeypatch):
    """Numbers of keys that the kernel was given."""
    decoding = importlib.import_module("fairseq_entmax.kernels.triton.decoding")
    original, counted = decoding.attention_step, []

    def counting(query, key, *given):
        counted.append(key.size(2))
        return original(query, key, *given)

    monkeypatch.setattr(decoding, "attention_step", counting)
    return counted


def both_ways(monkeypatch, attention, *given, **options):
    """Results and caches by the kernel, and by fairseq's way."""
    found = []
    for name in (kernels.TRITON, kernels.TORCH):
        monkeypatch.setenv(kernels.VARIABLE, name)
        results, state = decoded(attention, *given, per_order=2, **options)
        found.append((results, cache_of(attention, state)))
    return found


@pytest.mark.parametrize("mapping", ["entmax", "entmax15", "sparsemax|softmax*3"])
@pytest.mark.parametrize("options", [{"need_weights": False}, {"need_head_weights": True}, {}])
def test_self_attention_gives_what_fairseqs_way_gives(mapping, options, calls, monkeypatch):
    attention = make("self", mapping)
    (results, cache), (expected, other) = both_ways(monkeypatch, attention, ORDERS[:2], **options)
    assert calls == [1, 2, 3, 4, 5, 6]
    assert_same(results, expected)
    for name in ("prev_key", "prev_value"):
        torch.testing.assert_close(cache[name], other[name])


@pytest.mark.parametrize("is_padded", [True, False])
@pytest.mark.parametrize("options", [{"need_weights": False}, {"need_head_weights": True}])
def test_cross_attention_gives_what_fairseqs_way_gives(is_padded, options, calls, monkeypatch):
    source, padding = beams()
    given = ([[0, 0, 1, 5, 3, 4], [3, 5, 5]], source, padding if is_padded else None)
    (results, _), (expected, _) = both_ways(monkeypatch, make("cross"), *given, **options)
    assert calls == [9] * 6
    assert_same(results, expected)


@pytest.mark.parametrize("kind", ["self", "cross"])
def test_fewer_heads_and_gates_give_what_fairseqs_way_gives(kind, calls, monkeypatch):
    given = (ORDERS[:1], *(beams() if kind == "cross" else (None, None)))
    attention = make(kind, kept_heads=3, gated=True)
    (results, _), (expected, _) = both_ways(monkeypatch, attention, *given, need_head_weights=True)
    assert calls
    assert_same(results, expected)


def test_a_source_kept_once_for_its_beam_goes_fairseqs_way(calls, monkeypatch):
    attention = make("cross")
    attention.set_beam_size(3)
    orders = [[1, 0, 0, 5, 3, 4]]
    (results, _), (expected, _) = both_ways(monkeypatch, attention, orders, *beams())
    assert not calls
    assert_same(results, expected)


def test_a_search_may_change_between_the_ways(calls, monkeypatch):
    attention = make("self")
    query = torch.randn(6, 4, 32, generator=torch.Generator().manual_seed(3))
    runs = []
    for names in ([kernels.TORCH] * 6, [kernels.TRITON, kernels.TORCH] * 3):
        state, outputs = {}, []
        for name, row in zip(names, query.split(1), strict=True):
            monkeypatch.setenv(kernels.VARIABLE, name)
            with torch.no_grad():
                outputs.append(attention(row, row, row, incremental_state=state)[0])
            attention.reorder_incremental_state(state, torch.tensor([1, 0, 3, 3]))
        runs.append(torch.cat(outputs))
    assert calls == [1, 3, 5]
    torch.testing.assert_close(*runs, atol=4e-6, rtol=0)


@pytest.mark.parametrize("mapping", ["softmax", "fusedmax"])
def test_mappings_that_the_kernel_does_not_compute_go_fairseqs_way(mapping, calls, monkeypatch):
    both_ways(monkeypatch, make("self", mapping), ORDERS[:1])
    assert not calls


def test_padding_in_the_target_goes_fairseqs_way(calls, monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.TRITON)
    attention = make("self")
    query, padding = torch.randn(2, 2, 32), torch.tensor([[False], [True]])
    state = {}
    with torch.no_grad():
        for row, own in zip(query.split(1), (None, padding), strict=True):
            attention(row, row, row, own, incremental_state=state)
    assert calls == [1]
