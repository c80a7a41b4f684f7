"""Dropout of weights in the Triton kernels: the words, output and gradients against float64."""

import pytest
import torch

from fairseq_entmax.kernels.dropout import factors, first_words
from tests.kernels import reference
from tests.kernels.triton.support import DEVICE

pytest.importorskip("triton")
import triton
import triton.language as tl

from fairseq_entmax.kernels.triton import attention_dropout
from fairseq_entmax.kernels.triton import attention_tiles as tiles
from fairseq_entmax.kernels.triton.attention import WITH_DROPOUT, attention

SEED = torch.tensor([0x123456789ABCDEF])


@triton.jit(do_not_specialize=attention_dropout.NAMES)
def factors_kernel(number_ptr, result_ptr, seed_low, seed_high, least, kept, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    number = tl.load(number_ptr + at)
    result = attention_dropout.drawn(number, seed_low, seed_high, least, kept)
    tl.store(result_ptr + at, result)


@pytest.mark.parametrize("dropout", [0.1, 0.7, 1 - 2**-40])
@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1, 2**63 - 2, SEED.item()])
def test_the_weights_dropped_are_those_of_philox_in_torch_for_numbers_of_64_bits(seed, dropout):
    numbers = torch.arange(64)
    numbers[16:] += torch.tensor([2**31 - 8, 2**32 - 8, 2**45 + 12345]).repeat_interleave(16)
    result = torch.empty(64, device=DEVICE)
    given = attention_dropout.numbers_of(dropout, torch.tensor([seed]))
    # Of one type whatever the seed, or each kind of seed would be compiled for
    assert all(-(2**31) <= one < 2**31 for one in given[:3])
    factors_kernel[(1,)](numbers.to(DEVICE), result, *given, COUNT=64)
    least = min(round(dropout * 2**32), 2**32 - 1)
    stays = first_words(numbers, torch.tensor([seed])) >= least
    assert torch.equal(result.cpu(), torch.where(stays, 1 / (1 - dropout), 0.0))


def dropped_reference(query, key, value, epsilon, dropout, **options):
    """As :func:`tests.kernels.reference.attention`, whose values may be those of an identity."""
    identity = torch.eye(key.size(2), dtype=key.dtype).expand(*key.shape[:2], -1, -1)
    probs = reference.attention(query, key, identity, epsilon, **options)
    return (probs * factors(tuple(probs.shape), dropout, SEED, torch.device("cpu"))) @ value


def inputs(batch, heads, queries, keys, head_dim, dtype):
    generator = torch.Generator().manual_seed(queries)
    made = [
        torch.randn(batch, heads, length, head_dim, generator=generator)
        for length in (queries, keys, keys, queries)
    ]
    made[0] *= 2 / head_dim**0.5
    return [one.to(dtype).double() for one in made]


@pytest.mark.parametrize("passes", ["whole", "blocks"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float16, 4e-3), (torch.bfloat16, 2e-2)]
)
def test_output_and_gradients_are_those_of_float64(passes, causal, dtype, tolerance, monkeypatch):
    if passes == "blocks":
        monkeypatch.setattr(tiles, "MOST_KEYS_IN_REGISTERS", 0)
        monkeypatch.setattr(tiles, "LONG_BLOCK", 16)
    *tensors, grad = inputs(2, 2, 21, 37, 16, dtype)
    tensors.append(torch.tensor([0.2, 0.9], dtype=torch.float64))
    wide = [one.clone().requires_grad_() for one in tensors]
    narrow = [one.to(DEVICE, dtype).requires_grad_() for one in tensors[:3]]
    narrow.append(tensors[3].float().to(DEVICE).requires_grad_())
    truth = dropped_reference(*wide, 0.3, causal=causal, scale=0.8)
    truth.backward(grad)
    output = attention(*narrow, causal=causal, scale=0.8, dropout=0.3, seed=SEED)
    output.backward(grad.to(DEVICE, dtype))
    pairs = [(output, truth), *((a.grad, b.grad) for a, b in zip(narrow, wide, strict=True))]
    for result, expected in pairs:
        error = (result.cpu().double() - expected).abs().max()
        assert error <= tolerance * max(1.0, expected.abs().max())


def test_second_derivatives_are_those_of_float64():
    *tensors, weights = inputs(1, 2, 5, 7, 16, torch.float32)
    tensors.append(torch.tensor([0.4, 0.8], dtype=torch.float64))
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [one.to(DEVICE if dtype == torch.float32 else "cpu", dtype) for one in tensors]
        leaves = [one.requires_grad_() for one in leaves]
        if dtype == torch.float32:
            output = attention(*leaves, dropout=0.3, seed=SEED)
        else:
            output = dropped_reference(*leaves, 0.3)
        loss = (output * weights.to(output)).sum()
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(one.square().sum() for one in first), leaves))
    for result, truth in zip(*results, strict=True):
        assert truth.abs().max() > 0.01
        error = (result.cpu().double() - truth).abs().max()
        assert error <= 3e-4 * truth.abs().max()


def test_without_a_dropout_the_seed_plays_no_part():
    tensors = [one.float().to(DEVICE) for one in inputs(1, 2, 5, 7, 16, torch.float32)[:3]]
    plain = attention(*tensors, 0.4)
    assert torch.equal(attention(*tensors, 0.4, dropout=0.0, seed=SEED), plain)
    assert not torch.equal(attention(*tensors, 0.4, dropout=0.3, seed=SEED), plain)
    assert "attention" in WITH_DROPOUT
