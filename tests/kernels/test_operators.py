"""Kernels as operators: which way a call takes, and what torch itself checks of an operator."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_entmax.kernels import operators
from fairseq_entmax.mappings import entmax
from tests.kernels.native.support import needs_compiler

OPERATORS = torch.ops.fairseq_entmax
needs_opcheck = pytest.mark.skipif(
    not hasattr(torch.library, "opcheck"), reason="torch.library.opcheck is in torch 2.4 and later"
)


class Subclass(torch.Tensor):
    pass


def test_numbers_in_memory_are_plain():
    numbers = torch.zeros(2, 2)
    assert operators.is_plain(numbers, torch.nn.Parameter(numbers), None)
    with torch.autocast("cpu"), torch.inference_mode():
        assert operators.is_plain(numbers, numbers + 1)


@pytest.mark.parametrize(
    "other",
    [
        torch._neg_view(torch.zeros(2)),
        torch.zeros(2, device="meta"),
        torch.zeros(2).to_sparse(),
        torch.zeros(2).as_subclass(Subclass),
        FakeTensorMode().from_tensor(torch.zeros(2)),
    ],
    ids=["negative", "meta", "sparse", "subclass", "fake"],
)
def test_what_stands_for_more_than_numbers_is_not(other):
    assert not operators.is_plain(torch.zeros(2), other)


def test_nothing_is_plain_where_operations_are_watched_or_transformed():
    from torch.utils.flop_counter import FlopCounterMode

    numbers, seen = torch.zeros(2, 2), []

    def look(one):
        seen.append(operators.is_plain(numbers))
        return one.sum()

    torch.vmap(look)(numbers)
    torch.func.grad(look)(numbers)
    torch.jit.trace(look, numbers, check_trace=False)
    with FakeTensorMode():
        look(torch.zeros(2))
    with FlopCounterMode(display=False):
        look(numbers)
    assert seen == [False] * 5
    assert operators.is_plain(numbers)


def test_what_watches_operations_sees_one():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen: list[str] = []
    with Watch():
        entmax(torch.zeros(3, 4), 1.5)
    assert seen.count("fairseq_entmax.entmax.default") == 1


def test_both_ways_give_the_same_bits():
    scores = torch.randn(6, 8, 7, requires_grad=True)
    alpha = torch.full((8, 1), 1.3, requires_grad=True)
    direct = entmax(scores, alpha)
    dispatched = OPERATORS.entmax(scores, alpha[None], 0.0)
    assert torch.equal(direct, dispatched)
    grad = torch.randn_like(direct)
    for one, other in zip(
        *(torch.autograd.grad(probs, (scores, alpha), grad) for probs in (direct, dispatched)),
        strict=True,
    ):
        assert torch.equal(one, other)


SCORES = torch.randn(2, 3, 4, dtype=torch.float64)
ALPHA = torch.full((1, 3, 1), 1.3, dtype=torch.float64)
TARGET = torch.tensor([[0, 1, 2], [3, 2, 1]])
STRENGTHS = (ALPHA - 1.0, 0.0, ALPHA - 1.2, 0.0)


@needs_opcheck
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("entmax", (SCORES, ALPHA, 0.0)),
        ("entmax", (SCORES.transpose(0, 1), None, 1.0)),
        ("entmax_gradients", (SCORES.softmax(-1), ALPHA, 0.0, SCORES, True, True)),
        ("entmax_gradients", (SCORES.softmax(-1), None, 1.0, SCORES, True, False)),
        ("structured", (SCORES, "tv", *STRENGTHS)),
        ("structured", (SCORES, "pnorm", *STRENGTHS)),
        (
            "structured_gradients",
            (SCORES.softmax(-1), "tv", *STRENGTHS, None, SCORES, True, True, True),
        ),
        ("prox", (SCORES, "tv", *STRENGTHS[2:])),
        ("prox", (SCORES, "oscar", *STRENGTHS[2:])),
        (
            "prox_gradients",
            (SCORES, SCORES.sign(), SCORES > 1, "oscar", *STRENGTHS[2:], SCORES, True, True),
        ),
        ("entmax_loss", (SCORES, TARGET, 1.5, 0.1)),
        ("entmax_loss_gradients", (SCORES, TARGET, 1.5, 0.0, SCORES.sum(-1))),
        ("fenchel_young_loss", (SCORES, SCORES.softmax(-1), SCORES.softmax(-1), None, 1.0)),
    ],
)
def test_torch_finds_nothing_wrong_with_an_operator(name, arguments):
    overload = getattr(OPERATORS, name).default
    for requires_grad in (False, True):
        first = arguments[0].detach().clone().requires_grad_(requires_grad)
        results = torch.library.opcheck(overload, (first, *arguments[1:]))
        assert set(results.values()) == {"SUCCESS"}


@needs_opcheck
@needs_compiler
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("dropout", [(0.0, None), (0.3, torch.tensor([7]))])
def test_torch_finds_nothing_wrong_with_native_attention(keeps, dropout):
    query, key = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8)
    padding = torch.zeros(2, 7, dtype=torch.bool)
    given = (query, key, key * 2, torch.full((3,), 0.4), 0.0, None, 0.0, padding, None, True, 0.3)
    given = (*given, *dropout)
    results = torch.library.opcheck(OPERATORS.native_attention.default, (*given, "", keeps))
    assert set(results.values()) == {"SUCCESS"}
    if keeps:
        output, probs, _ = OPERATORS.native_attention(*given, "", True)
        behind = (None, probs, None, output, True, True, True, True, False)
        overload = OPERATORS.native_attention_gradients.default
        assert set(torch.library.opcheck(overload, (*given, "", *behind)).values()) == {"SUCCESS"}


@needs_compiler
@pytest.mark.parametrize("kind", ["", "tv"])
def test_native_attention_lies_in_memory_as_its_fake_does(kind):
    """torch.compile takes the strides of what is kept for granted."""
    inputs = [torch.randn(2, 3, length, 8) for length in (5, 7, 7)]

    def strides(inputs):
        strength = None if kind == "" else inputs[0].new_full((1,), 0.1)
        given = (*inputs, None, 0.4, strength, 0.0, None, None, True, 0.3, 0.0, None, kind)
        return [one.stride() for one in OPERATORS.native_attention(*given, True) if one.numel()]

    with FakeTensorMode() as mode:
        expected = strides([mode.from_tensor(one) for one in inputs])
    assert strides(inputs) == expected
