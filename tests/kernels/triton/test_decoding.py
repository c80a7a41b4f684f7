"""Attention of one query a step: output and probabilities against float64, masks, and compiling."""

import pytest
import torch

from tests.kernels import reference
from tests.kernels.triton.support import DEVICE, compile_for_h100

pytest.importorskip("triton")
from fairseq_entmax.kernels.triton import decoding
from fairseq_entmax.kernels.triton.decoding import attention_step, step_tile


def inputs(batch, heads, keys, head_dim, dtype=torch.float32):
    """Query, key and value, in float64 as ``dtype`` rounds them."""
    generator = torch.Generator().manual_seed(keys)
    query, key, value = (
        torch.randn(batch, heads, length, head_dim, generator=generator)
        for length in (1, keys, keys)
    )
    return [one.to(dtype).double() for one in (query * 2 / head_dim**0.5, key, value)]


def check(tensors, epsilon, tolerance=1e-5, dtype=torch.float32, padding=None, scale=1.0):
    """Output and probabilities: those of values of an identity."""
    query, key, _ = tensors
    given = torch.as_tensor(epsilon, dtype=torch.float64).reshape(-1)
    options = {"padding": padding, "scale": scale}
    truth = reference.attention(*tensors, given, **options)
    identity = torch.eye(key.size(2), dtype=torch.float64).expand(*key.shape[:2], -1, -1)
    true_probs = reference.attention(query, key, identity, given, **options)
    narrow = [one.to(DEVICE, dtype) for one in tensors]
    epsilon = epsilon.to(DEVICE) if isinstance(epsilon, torch.Tensor) else epsilon
    padding = None if padding is None else padding.to(DEVICE)
    output, probs = attention_step(*narrow, epsilon, padding, scale, wants_probs=True)
    assert output.dtype == dtype
    assert probs.dtype == torch.float32
    for result, expected in ((output, truth), (probs, true_probs)):
        assert result.shape == expected.shape
        error = (result.cpu().double() - expected).abs().max()
        assert error <= tolerance * max(1.0, expected.abs().max())


LEARNED = torch.tensor([0.2, 0.9])


@pytest.mark.parametrize("epsilon", [0.0, 0.333, 0.5, 1.0, torch.tensor(0.4), LEARNED])
def test_output_and_probabilities_are_those_of_float64(epsilon):
    check(inputs(3, 2, 37, 16), epsilon)


@pytest.mark.parametrize("keys", [1, 16, 127, 129, 700])
def test_any_number_of_keys(keys):
    check(inputs(2, 2, keys, 64), LEARNED)


@pytest.mark.parametrize("head_dim", [1, 80, 256])
def test_any_head_dim(head_dim):
    check(inputs(1, 2, 70, head_dim), LEARNED)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-3), (torch.bfloat16, 8e-3)])
def test_halves(dtype, tolerance):
    check(inputs(2, 2, 33, 32, dtype), LEARNED, tolerance, dtype)


def test_padding_and_scale():
    padding = torch.zeros(2, 300, dtype=torch.bool)
    padding[0, 20:] = True
    padding[1, :130] = True
    check(inputs(2, 2, 300, 64), LEARNED, padding=padding, scale=0.3)


def test_rows_longer_than_a_program_holds(monkeypatch):
    monkeypatch.setattr(decoding, "MOST_KEYS", 64)
    padding = torch.zeros(2, 65, dtype=torch.bool)
    padding[0, 20:] = True
    check(inputs(2, 2, 65, 16), LEARNED, padding=padding, scale=0.3)


def test_it_reads_any_strides_and_returns_probabilities_only_where_they_are_wanted():
    tensors = [one.float().to(DEVICE) for one in inputs(3, 2, 9, 16)]
    expected, _ = attention_step(*tensors, 0.4)
    # A cache with room for more keys, as (keys, batch, heads, head_dim) in memory
    cached = [one.new_zeros(12, 3, 2, 16) for one in tensors[1:]]
    for cache, one in zip(cached, tensors[1:], strict=True):
        cache[:9] = one.permute(2, 0, 1, 3)
    query = tensors[0].permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    output, probs = attention_step(query, *(one[:9].permute(1, 2, 0, 3) for one in cached), 0.4)
    assert torch.equal(output, expected)
    assert probs is None


def test_a_query_without_keys_gets_zeros_and_nan_stays_in_its_row():
    query, key, value = (one.float().to(DEVICE) for one in inputs(3, 2, 140, 64))
    padding = torch.zeros(3, 140, dtype=torch.bool, device=DEVICE)
    padding[0] = True
    query[1, 0, 0, 3] = torch.nan
    epsilon = torch.tensor([0.4, torch.nan], device=DEVICE)
    output, probs = attention_step(query, key, value, epsilon, padding, wants_probs=True)
    for one in (output, probs):
        assert (one[0] == 0).all()
        assert one[1, 0].isnan().all()
        assert one[1:, 1].isnan().all()
        assert one[2, 0].isfinite().all()
    for keys in (0, 3):
        empty = [one[: 0 if keys else 3, :, :keys] for one in (key, value)]
        output, probs = attention_step(query[: len(empty[0])], *empty, 0.4, wants_probs=True)
        assert output.shape == (len(empty[0]), 2, 1, 64)
        assert probs.shape == (len(empty[0]), 2, 1, keys)
        assert (output == 0).all()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (((2, 3, 2, 16), (2, 3, 7, 16)), "query must be .*batch, heads, 1, head_dim"),
        (((2, 3, 1, 16), (2, 1, 7, 16)), r"key must be \(2, 3, 7, 16\)"),
    ],
)
def test_what_cannot_be_taken_is_named(sizes, message):
    query, key = (torch.zeros(size, device=DEVICE) for size in sizes)
    with pytest.raises(ValueError, match=message):
        attention_step(query, key, key, 0.5)


FLOATS = {"epsilon_ptr": "*fp32", "padding_ptr": "*u8", "probs_ptr": "*fp32"}
FLOATS |= {"scale": "fp32", "epsilon_number": "fp32"}


def compile_cases():
    for architecture in (80, 90):
        for dtype, head_dim, keys, kind, known in (
            ("fp16", 64, 30, 0, {"padding_ptr": None}),
            ("bf16", 80, 300, 0, {"probs_ptr": None, "epsilon_ptr": None}),
            ("fp32", 256, 1024, 1, {}),
            ("fp16", 64, decoding.MOST_KEYS, 2, {}),
        ):
            tile = step_tile(keys, head_dim)
            yield {
                "module": "fairseq_entmax.kernels.triton.decoding_kernels",
                "kernel": "step_kernel",
                "pointer": f"*{dtype}",
                "types": FLOATS,
                "constants": known
                | {"KIND": kind, "HEAD_DIM": head_dim, "BLOCK_D": decoding.block_of(head_dim)}
                | {"CHUNKS": tile.chunks, "LANES": tile.lanes},
                "options": {"num_warps": tile.warps, "num_stages": 1},
                "aligned": True,
                "architecture": architecture,
            }


@pytest.mark.slow
@pytest.mark.compiles_only
def test_the_kernel_compiles_and_leaves_room_for_many_programs():
    cases = list(compile_cases())
    results = compile_for_h100(cases)
    assert len(results) == len(cases)
    for case, (code, memory) in zip(cases, results, strict=True):
        assert code > 0
        assert memory <= 16 * 1024, case
