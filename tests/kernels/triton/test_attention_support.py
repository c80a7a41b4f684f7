"""Tiles without support: which are marked, and that skipping them changes no bit."""

import pytest
import torch

from fairseq_entmax.kernels.attention import Given
from tests.kernels.triton.support import DEVICE

pytest.importorskip("triton")
from fairseq_entmax.kernels.triton import attention as triton_attention
from fairseq_entmax.kernels.triton import attention_tiles as tiles
from fairseq_entmax.kernels.triton.attention_support import UNIT

SIDE = UNIT.value
ALL = (True, True, True, True, False)


@pytest.fixture(params=["whole", "blocks"])
def passes(request, monkeypatch):
    """Rows held in registers, and rows in blocks of 64 keys with smaller tiles backward."""
    if request.param == "blocks":
        monkeypatch.setattr(tiles, "MOST_KEYS_IN_REGISTERS", 0)


def given_of(query, key, value, epsilon=0.4, **options):
    fields = {"padding": None, "mask": None, "causal": False, "scale": 1.0, "dropout": 0.0}
    fields |= {"seed": None, "kind": "", "strength": None, "strength_number": 0.0}
    is_tensor = isinstance(epsilon, torch.Tensor)
    fields |= {"epsilon": epsilon if is_tensor else None}
    fields |= {"epsilon_number": 0.0 if is_tensor else epsilon}
    return Given(query=query, key=key, value=value, **(fields | options))


def local(queries, keys, dtype=torch.float32, heads=2):
    """Queries that see the keys of their own stretch of 16, and some noise."""
    generator = torch.Generator().manual_seed(queries)
    made = [torch.randn(1, heads, length, 64, generator=generator) for length in (queries, keys)]
    for one in made:
        stretch = torch.arange(one.size(2)) // SIDE
        one *= 0.05
        one[:, :, torch.arange(one.size(2)), stretch] += 5.0
    value = torch.randn(1, heads, keys, 64, generator=generator)
    grad = torch.randn(1, heads, queries, 64, generator=generator)
    return [one.to(DEVICE, dtype) for one in (*made, value, grad)]


def tiles_of(probs):
    """Whether any number is not 0 in each tile of 16 queries by 16 keys."""
    queries, keys = probs.shape[2:]
    padded = torch.nn.functional.pad(probs, (0, -keys % SIDE, 0, -queries % SIDE))
    return padded.unflatten(3, (-1, SIDE)).unflatten(2, (-1, SIDE)).ne(0).any(5).any(3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "dropout"), [(torch.float32, 0.0), (torch.float16, 0.4)])
@pytest.mark.usefixtures("passes")
def test_skipping_changes_no_bit(causal, dropout, dtype):
    query, key, value, grad = local(100, 150, dtype)
    padding = torch.zeros(1, 150, dtype=torch.bool, device=DEVICE)
    padding[:, 70:90] = True
    options = {"causal": causal, "padding": padding, "dropout": dropout, "seed": torch.tensor([3])}
    epsilon = torch.tensor([0.3, 1.0], device=DEVICE)
    given = given_of(query, key, value, epsilon, **options)
    output, statistics, support = triton_attention._forward(given, True)
    assert support.float().mean() < 0.3
    results = [
        triton_attention._backward(given, output, statistics, marked, grad, ALL)
        for marked in (support, torch.ones_like(support))
    ]
    for skipped, complete in zip(*results, strict=True):
        assert skipped is complete is None or torch.equal(skipped, complete)
    assert all((one != 0).any() for one in results[0][:4])


@pytest.mark.parametrize(
    ("queries", "keys", "epsilon", "causal"),
    [(70, 130, 0.05, False), (33, 300, 0.5, True), (130, 40, 1.0, True), (5, 7, 0.4, False)],
)
@pytest.mark.usefixtures("passes")
def test_no_tile_with_support_is_left_out(queries, keys, epsilon, causal):
    generator = torch.Generator().manual_seed(keys)
    query, key, value = (
        torch.randn(2, 2, length, 32, generator=generator).to(DEVICE)
        for length in (queries, keys, keys)
    )
    given = given_of(query, key, value, epsilon, causal=causal)
    marked = triton_attention._forward(given, True)[2].bool()
    supported = tiles_of(triton_attention._probs(given))
    assert marked.shape == supported.shape
    assert marked[supported].all()
    # Scores differ much more than what counts as near the threshold
    assert (marked & ~supported).float().mean() < 0.01


@pytest.mark.usefixtures("passes")
def test_where_queries_see_their_own_stretch_all_other_tiles_are_skipped():
    query, key, value, _ = local(6 * SIDE - 3, 7 * SIDE - 5)
    support = triton_attention._forward(given_of(query, key, value), True)[2]
    expected = torch.eye(6, 7, dtype=torch.uint8, device=DEVICE).expand(1, 2, 6, 7)
    assert torch.equal(support, expected)


def test_what_is_not_marked_is_not_looked_at():
    query, key, value, grad = local(5 * SIDE, 5 * SIDE)
    given = given_of(query, key, value, torch.tensor([0.4], device=DEVICE))
    output, statistics, support = triton_attention._forward(given, True)
    support[0, 1, 2, 2] = 0
    grads = triton_attention._backward(given, output, statistics, support, grad, ALL)
    # Tiles are of 32 queries and keys: those from 32 on are looked at with the next stretch
    support[0, 1, 3, 3] = 0
    without = triton_attention._backward(given, output, statistics, support, grad, ALL)
    for one, other in zip(grads[:3], without[:3], strict=True):
        assert (one[0, 1, 32:64] != 0).any(-1).all()
        assert (other[0, 1, 32:64] == 0).all()
        assert torch.equal(one[0, 0], other[0, 0])
        assert torch.equal(one[0, 1, :32], other[0, 1, :32])
        assert torch.equal(one[0, 1, 64:], other[0, 1, 64:])


@pytest.mark.usefixtures("passes")
def test_a_key_as_near_to_the_threshold_as_rounding_can_move_it_counts_as_support():
    # Sparsemax, whose first key has all: 1 + score - 1 of others is what they are short of, or not
    query, key = torch.zeros(1, 1, 1, 16), torch.zeros(1, 1, 4 * SIDE, 16)
    query[..., 0], key[..., 0] = 1.0, -5.0
    key[0, 0, [0, SIDE, 2 * SIDE, 3 * SIDE], 0] = torch.tensor([1.0, -(2**-12), -(2**-8), -1.0])
    given = given_of(query.to(DEVICE), key.to(DEVICE), key.to(DEVICE), 1.0)
    assert triton_attention._probs(given).count_nonzero() == 1
    support = triton_attention._forward(given, True)[2]
    assert support.flatten().tolist() == [1, 1, 0, 0]


@pytest.mark.usefixtures("passes")
def test_a_row_that_is_nan_is_looked_at_whole_and_one_without_keys_not_at_all():
    query, key, value, _ = local(3 * SIDE, 5 * SIDE)
    query[0, 0, SIDE, 0] = torch.nan
    given = given_of(query, key, value)
    support = triton_attention._forward(given, True)[2]
    assert (support[0, 0, 1] == 1).all()
    assert support[0, 0, [0, 2]].sum() == 2
    padding = torch.ones(1, 5 * SIDE, dtype=torch.bool, device=DEVICE)
    support = triton_attention._forward(given._replace(padding=padding), True)[2]
    assert (support == 0).all()


def test_nothing_is_kept_where_no_backward_pass_follows():
    query, key, value, _ = local(20, 20)
    given = given_of(query, key, value)
    output, *kept = triton_attention._forward(given, False)
    assert kept == [None, None]
    with_kept, statistics, support = triton_attention._forward(given, True)
    assert torch.equal(output, with_kept)
    shapes = [(one.shape, one.dtype) for one in triton_attention._kept(given)]
    assert shapes == [(one.shape, one.dtype) for one in (statistics, support)]
