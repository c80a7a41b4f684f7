"""Fused attention: output and gradients against float64, masks, shapes, errors, and compiling."""

from types import SimpleNamespace

import pytest
import torch

from fairseq_entmax import kernels
from tests.kernels import reference
from tests.kernels.triton.support import DEVICE, compile_for_h100

pytest.importorskip("triton")
from fairseq_entmax.kernels.triton import attention as triton_attention
from fairseq_entmax.kernels.triton import attention_tiles as tiles
from fairseq_entmax.kernels.triton.attention import attention


def inputs(batch, heads, queries, keys, head_dim, dtype=torch.float32, seed=0):
    """Query, key, value and a gradient of the output, in float64 as ``dtype`` rounds them."""
    generator = torch.Generator().manual_seed(seed)
    made = [
        torch.randn(batch, heads, length, head_dim, generator=generator)
        for length in (queries, keys, keys, queries)
    ]
    made[0] *= 2.0 / head_dim**0.5
    return [tensor.to(dtype).double() for tensor in made]


def check(tensors, epsilon, tolerance=1e-5, dtype=torch.float32, **options):
    """Output and all gradients, the errors relative to the largest number of each."""
    *tensors, grad = tensors
    wide = [tensor.clone().requires_grad_() for tensor in tensors]
    narrow = [tensor.to(DEVICE, dtype).requires_grad_() for tensor in tensors]
    if isinstance(epsilon, torch.Tensor):
        wide.append(epsilon.double().requires_grad_())
        narrow.append(epsilon.to(DEVICE).requires_grad_())
    else:
        wide.append(torch.tensor([epsilon], dtype=torch.float64))
        narrow.append(epsilon)
    truth = reference.attention(*wide, **options)
    truth.backward(grad)
    names = {"padding": "key_padding_mask", "mask": "attn_mask"}
    given = {
        names.get(name, name): value.to(DEVICE) if isinstance(value, torch.Tensor) else value
        for name, value in options.items()
    }
    output = attention(*narrow, **given)
    output.backward(grad.to(DEVICE, dtype))
    assert output.dtype == dtype
    pairs = [(output, truth)]
    pairs += [(a.grad, b.grad) for a, b in zip(narrow, wide, strict=True) if b.requires_grad]
    assert len(pairs) == 4 + isinstance(epsilon, torch.Tensor)
    for result, expected in pairs:
        assert result.shape == expected.shape
        error = (result.cpu().double() - expected).abs().max()
        assert error <= tolerance * max(1.0, expected.abs().max())


def learned(heads):
    return torch.linspace(0.2, 0.9, heads)


@pytest.fixture(params=["whole", "blocks"])
def passes(request, monkeypatch):
    """Rows held in registers, and rows in blocks of 16 keys."""
    if request.param == "blocks":
        monkeypatch.setattr(tiles, "MOST_KEYS_IN_REGISTERS", 0)
        monkeypatch.setattr(tiles, "LONG_BLOCK", 16)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.1, 0.333, 0.5, 0.75, 1.0, None])
@pytest.mark.usefixtures("passes")
def test_output_and_gradients_are_those_of_float64(epsilon):
    check(inputs(2, 3, 21, 37, 16), learned(3) if epsilon is None else epsilon)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 1e-2, 0.5, 0.9999, 1.0])
@pytest.mark.usefixtures("passes")
def test_epsilon_of_one_for_all_heads_gets_its_gradient_at_any_value(epsilon):
    check(inputs(2, 2, 9, 20, 16), torch.tensor(epsilon))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("with_padding", [False, True])
@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.usefixtures("passes")
def test_masks(causal, with_padding, with_mask):
    options = {"causal": causal}
    if with_padding:
        options["padding"] = torch.zeros(2, 35, dtype=torch.bool)
        options["padding"][0, 20:] = True
    if with_mask:
        options["mask"] = torch.randn(35, 35, generator=torch.Generator().manual_seed(7))
        options["mask"][3, 1] = -torch.inf
    check(inputs(2, 2, 35, 35, 16), learned(2), **options)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 33), (7, 40), (40, 7), (16, 16)])
@pytest.mark.usefixtures("passes")
def test_causal_attention_of_other_lengths_lets_the_last_query_see_all_keys(queries, keys):
    # With fewer keys than queries the first queries see none
    check(inputs(1, 2, queries, keys, 16), learned(2), causal=True)


@pytest.mark.usefixtures("passes")
def test_causal_equals_the_mask_of_fairseq():
    tensors = [tensor.float().to(DEVICE) for tensor in inputs(1, 2, 30, 30, 16)[:3]]
    mask = torch.full((30, 30), -torch.inf, device=DEVICE).triu(1)
    masked = attention(*tensors, 0.5, attn_mask=mask)
    torch.testing.assert_close(attention(*tensors, 0.5, causal=True), masked, atol=1e-6, rtol=0)


@pytest.mark.parametrize("head_dim", [1, 32, 64, 80, 128, 256])
def test_any_head_dim(head_dim):
    check(inputs(1, 2, 10, 12, head_dim), learned(2))


@pytest.mark.parametrize("keys", [64, 65, 128, 129, 257])
def test_numbers_of_keys_around_the_sizes_of_tiles(keys):
    check(inputs(1, 1, 5, keys, 16), learned(1))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 3e-3), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("epsilon", [0.5, None])
@pytest.mark.usefixtures("passes")
def test_halves(dtype, tolerance, epsilon):
    tensors = inputs(2, 2, 20, 33, 32, dtype)
    check(tensors, learned(2) if epsilon is None else epsilon, tolerance, dtype)


def test_the_scale_is_that_of_the_scores():
    check(inputs(1, 2, 10, 12, 16), learned(2), scale=0.25)


@pytest.mark.usefixtures("passes")
def test_a_query_that_sees_no_key_gets_zeros_and_gives_no_gradients():
    query, key, value, grad = (tensor.float().to(DEVICE) for tensor in inputs(2, 2, 6, 9, 16))
    padding = torch.zeros(2, 9, dtype=torch.bool, device=DEVICE)
    padding[1] = True
    leaves = [tensor.requires_grad_() for tensor in (query, key, value)]
    epsilon = learned(2).to(DEVICE).requires_grad_()
    output = attention(*leaves, epsilon, padding)
    output.backward(grad)
    assert (output[1] == 0).all()
    for leaf in leaves:
        assert (leaf.grad[1] == 0).all()
        assert (leaf.grad[0] != 0).any()
    alone = learned(2).to(DEVICE).requires_grad_()
    attention(*(leaf[:1].detach() for leaf in leaves), alone).backward(grad[:1])
    torch.testing.assert_close(epsilon.grad, alone.grad)


@pytest.mark.parametrize("epsilon", [0.3, 0.5, 1.0])
@pytest.mark.usefixtures("passes")
def test_nan_shows_in_its_own_query_only(epsilon):
    query, key, value, grad = (tensor.float().to(DEVICE) for tensor in inputs(1, 2, 6, 9, 16))
    query[0, 0, 2, 5] = torch.nan
    leaves = [tensor.requires_grad_() for tensor in (query, key, value)]
    output = attention(*leaves, epsilon)
    output.backward(grad)
    others = [0, 1, 3, 4, 5]
    assert output[0, 0, 2].isnan().all()
    assert output[0, 0, others].isfinite().all()
    assert output[0, 1].isfinite().all()
    assert query.grad[0, 0, 2].isnan().all()
    assert query.grad[0, 0, others].isfinite().all()


@pytest.mark.usefixtures("passes")
def test_an_epsilon_that_is_nan_spoils_its_head_alone():
    *three, grad = (tensor.float().to(DEVICE) for tensor in inputs(2, 3, 6, 19, 16))
    padding = torch.zeros(2, 19, dtype=torch.bool, device=DEVICE)
    padding[0] = True
    results = []
    for epsilons in ([0.3, torch.nan, 0.8], [0.3, 0.5, 0.8]):
        epsilon = torch.tensor(epsilons, device=DEVICE, requires_grad=True)
        leaves = [tensor.clone().requires_grad_() for tensor in three]
        output = attention(*leaves, epsilon, padding)
        output.backward(grad)
        results.append([output, *(leaf.grad for leaf in leaves)])
        results.append(epsilon.grad)
    harmed, for_harmed, clean, for_clean = results
    for tensor, same in zip(harmed, clean, strict=True):
        assert (tensor[0] == 0).all()  # no query has a key
        assert tensor[1, 1].isnan().all()
        assert torch.equal(tensor[:, [0, 2]], same[:, [0, 2]])
    assert for_harmed[1].isnan()
    assert torch.equal(for_harmed[[0, 2]], for_clean[[0, 2]])


@pytest.mark.parametrize("masks", ["causal", "mask"])
@pytest.mark.usefixtures("passes")
def test_a_key_that_the_mask_leaves_out_harms_no_query_even_if_it_is_nan(masks):
    query, key, value, _ = (tensor.float().to(DEVICE) for tensor in inputs(1, 2, 20, 20, 16))
    future = torch.full((20, 20), -torch.inf, device=DEVICE).triu(1)
    options = {"causal": True} if masks == "causal" else {"attn_mask": future}
    clean = attention(query, key, value, 0.5, **options)
    key[0, 0, 11] = torch.nan
    output = attention(query, key, value, 0.5, **options)
    assert output[0, 0, 11:].isnan().all()
    assert torch.equal(output[0, 0, :11], clean[0, 0, :11])
    assert torch.equal(output[0, 1], clean[0, 1])


@pytest.mark.parametrize("epsilon", [-3.0, 1.001, 1e30, torch.inf])
@pytest.mark.usefixtures("passes")
def test_an_epsilon_out_of_range_ends_in_some_result(epsilon):
    query, key, value, grad = (tensor.float().to(DEVICE) for tensor in inputs(1, 2, 6, 19, 16))
    leaves = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
    epsilons = torch.tensor([epsilon, 0.5], device=DEVICE, requires_grad=True)
    output = attention(*leaves, epsilons)
    output.backward(grad)
    clean = attention(query, key, value, torch.tensor([0.4, 0.5], device=DEVICE))
    assert torch.equal(output[:, 1], clean[:, 1])


def test_the_result_is_the_same_in_any_layout():
    query, key, value, grad = (tensor.float().to(DEVICE) for tensor in inputs(3, 2, 9, 11, 16))
    plain = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
    # As fairseq has them, (positions, batch, heads, head_dim) in memory, and with no dense dimension
    fairseq = [
        tensor.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3).requires_grad_()
        for tensor in (query, key, value)
    ]
    spread = [tensor.mT.contiguous().mT.requires_grad_() for tensor in (query, key, value)]
    results = []
    for leaves in (plain, fairseq, spread):
        output = attention(*leaves, 0.4)
        output.backward(grad)
        results.append([output, *(leaf.grad for leaf in leaves)])
    for first, *others in zip(*results, strict=True):
        assert all(torch.equal(first, other) for other in others)
    # What the output projection takes is a view
    assert results[0][0].permute(2, 0, 1, 3).is_contiguous()


def test_a_gradient_comes_alone():
    tensors = [tensor.float().to(DEVICE) for tensor in inputs(1, 2, 6, 9, 16)[:3]]
    all_leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    attention(*all_leaves, 0.3).square().sum().backward()
    for place in range(3):
        leaves = list(tensors)
        leaves[place] = leaves[place].clone().requires_grad_()
        attention(*leaves, 0.3).square().sum().backward()
        assert torch.equal(leaves[place].grad, all_leaves[place].grad)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, torch.tensor(0.3), learned(2)])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"padding": True}, {"mask": True}])
def test_second_derivatives_are_those_of_float64(epsilon, options):
    tensors = inputs(2, 2, 9, 11, 16)
    reference.check_second_derivatives(attention, tensors, epsilon, DEVICE, **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_second_derivatives_of_halves_are_those_of_float64(dtype):
    tensors = inputs(2, 2, 9, 11, 16, dtype)
    reference.check_second_derivatives(attention, tensors, learned(2), DEVICE, dtype)


@pytest.mark.parametrize("empty", ["batch", "queries", "keys"])
def test_empty_tensors_give_zeros(empty):
    sizes = {"batch": 2, "queries": 3, "keys": 4} | {empty: 0}
    query = torch.ones(sizes["batch"], 2, sizes["queries"], 16, device=DEVICE, requires_grad=True)
    key = torch.ones(sizes["batch"], 2, sizes["keys"], 16, device=DEVICE, requires_grad=True)
    epsilon = torch.tensor([0.5, 0.3], device=DEVICE, requires_grad=True)
    output = attention(query, key, key, epsilon)
    output.sum().backward()
    assert output.shape == query.shape
    for tensor in (output, query.grad, key.grad, epsilon.grad):
        assert (tensor == 0).all()


QUERY = torch.zeros(2, 3, 5, 16, device=DEVICE)
KEY = torch.zeros(2, 3, 7, 16, device=DEVICE)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": QUERY[0]}, "query must be .*batch, heads, queries, head_dim"),
        ({"query": QUERY.double()}, "float32, float16 or bfloat16 .* not .*float64"),
        ({"query": QUERY.expand(2, 3, 5, 16).repeat(1, 1, 1, 17)}, "head_dim of 1 to 256"),
        ({"key": KEY[:1]}, r"key must be \(2, 3, keys, 16\)"),
        ({"key": KEY.half()}, "key must be .* in torch.float32"),
        ({"value": KEY[:, :, :6]}, "as many keys as there are values"),
        ({"epsilon": torch.zeros(2, device=DEVICE)}, r"epsilon must be .* shape \(3,\)"),
        ({"key_padding_mask": torch.zeros(2, 7, device=DEVICE)}, "key_padding_mask must be"),
        ({"attn_mask": torch.zeros(7, 5, device=DEVICE)}, r"attn_mask must be .* \(5, 7\)"),
        ({"attn_mask": torch.zeros(5, 7, device=DEVICE).requires_grad_()}, "takes no gradient"),
        ({"attn_mask": torch.zeros(5, 7, device="meta")}, "attn_mask must be on"),
    ],
)
def test_what_cannot_be_taken_is_named(changed, message):
    given = {"query": QUERY, "key": KEY, "value": KEY, "epsilon": 0.5} | changed
    with pytest.raises(ValueError, match=message):
        attention(**given)


def test_the_switch_chooses_it(monkeypatch):
    def found(query, dtype=torch.float32):
        function = kernels.attention_for(query, dtype, query.size(-1), kernels.FusedEntmax(0.5))
        return None if function is None else function.func

    monkeypatch.setenv(kernels.VARIABLE, kernels.TRITON)
    assert found(QUERY) is triton_attention.attention
    assert found(QUERY, torch.float16) is triton_attention.attention  # as autocast does
    assert found(QUERY.double(), torch.float64) is None
    monkeypatch.setenv(kernels.VARIABLE, kernels.TORCH)
    assert found(QUERY) is None
    monkeypatch.setenv(kernels.VARIABLE, kernels.AUTO)
    assert found(QUERY.cpu()) is not triton_attention.attention


@pytest.mark.parametrize(
    ("major", "kib", "row_bytes", "fits"),
    [
        (9, 227, 1024, True),  # H100
        (8, 163, 1024, False),  # A100: float32 heads of 256 do not fit
        (8, 163, 512, True),
        (8, 99, 512, True),  # consumer GPUs
        (8, 99, 1024, False),
        (7, 64, 64, False),
    ],
)
def test_a_gpu_without_room_for_it_is_left_out(major, kib, row_bytes, fits, monkeypatch):
    properties = SimpleNamespace(major=major, shared_memory_per_block_optin=kib * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert tiles.has_room.__wrapped__(torch.device("cuda"), row_bytes) is fits


# --- compiling -----------------------------------------------------------------------------------

FLOATS = dict.fromkeys(("epsilon_ptr", "mask_ptr", "statistics_ptr", "middle_ptr"), "*fp32")
FLOATS |= {"grad_alpha_ptr": "*fp32", "padding_ptr": "*u8", "support_ptr": "*u8"}
FLOATS |= {"scale": "fp32", "kept": "fp32"}
BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
# Head dimension, kind of epsilon, lengths, and what is known when compiling: None or 1
VARIANTS = [
    (64, 0, (30, 30), {"padding_ptr": None, "mask_ptr": None}, False),
    (64, 0, (128, 2048), {"mask_ptr": None, "mask_row": 1}, False),
    (128, 0, (128, 100), {"mask_ptr": None}, False),
    (80, 1, (200, 200), {}, True),
    (256, 0, (600, 600), {"mask_ptr": None, "queries": 1, "heads": 1}, True),
    (16, 2, (40, 2000), {"padding_ptr": None, "mask_row": 1, "keys": 1}, False),
]
# Compute capability, dtype and dropout; to the compiler bfloat16 is as float16
TO_COMPILE = [(90, dtype, False, variant) for dtype in ("fp32", "fp16") for variant in VARIANTS]
TO_COMPILE += [(80, "fp16", True, VARIANTS[0]), (80, "bf16", False, VARIANTS[1])]
TO_COMPILE += [(90, "bf16", True, VARIANTS[1]), (80, "fp32", True, VARIANTS[4])]


def compile_cases():
    for architecture, dtype, drops, variant in TO_COMPILE:
        head_dim, kind, (queries, keys), known, causal = variant
        width = max(16, 1 << (head_dim - 1).bit_length())
        lengths = (queries, keys, head_dim, BYTES[dtype])
        for file, name, tile in (
            ("forward", "forward_kernel", tiles.forward_tile(*lengths)),
            ("backward", "backward_queries_kernel", tiles.backward_tile(*lengths)),
            ("backward", "backward_keys_kernel", tiles.backward_tile(*lengths)),
        ):
            # As for inference
            nothing = {"statistics_ptr": None, "support_ptr": None}
            nothing = nothing if (architecture, dtype, file) == (90, "fp32", "forward") else {}
            yield {
                "module": f"fairseq_entmax.kernels.triton.attention_{file}",
                "kernel": name,
                "pointer": f"*{dtype}",
                "types": FLOATS,
                "constants": known
                | {
                    "KIND": kind,
                    "DROPOUT": drops,
                    "FOR_ALPHA": kind == 0,
                    "CAUSAL": causal,
                    "WHOLE": tile.whole,
                }
                | {"PRECISION": "tf32x3", "HEAD_DIM": head_dim, "BLOCK_D": width}
                | {"BLOCK_M": tile.queries, "BLOCK_N": tile.keys},
                "options": {"num_warps": tile.warps, "num_stages": tile.stages},
                "aligned": True,
                "architecture": architecture,
            }


@pytest.mark.slow
@pytest.mark.compiles_only
def test_the_kernels_compile_and_fit_the_shared_memory_that_is_asked_for():
    cases = list(compile_cases())
    results = compile_for_h100(cases)
    assert len(results) == len(cases)
    for case, (code, memory) in zip(cases, results, strict=True):
        assert code > 0
        kib = 227
        if case["architecture"] == 80:  # what has_room asks for
            row_bytes = case["constants"]["BLOCK_D"] * BYTES[case["pointer"][1:]]
            kib = next(kib for most, kib in tiles.KIB_OF_ROWS.items() if row_bytes <= most)
        assert memory <= kib * 1024, case
