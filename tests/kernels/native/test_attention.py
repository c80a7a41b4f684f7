"""Attention in one native kernel, against the same in float64 with torch's operations."""

import pytest
import torch

from fairseq_entmax.kernels.native import attention as native_attention
from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native.attention import attention
from fairseq_entmax.mappings import entmax
from tests.kernels import reference
from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler

SHAPES = [  # batch, heads, queries, keys, head_dim
    (1, 1, 1, 1, 8),
    (3, 4, 7, 7, 32),
    (2, 2, 16, 130, 64),
    (2, 3, 17, 33, 20),
    (2, 2, 33, 300, 5),
    (5, 4, 30, 30, 32),
    (2, 1, 40, 3, 128),
]


def tensors(shape, seed=0, scale=1.0):
    """Query, key, value, gradient of the output, and the padding, of which some has no key left."""
    batch, heads, queries, keys, size = shape
    generator = torch.Generator().manual_seed(seed)
    lengths = (queries, keys, keys, queries)
    made = [
        scale * torch.randn(batch, heads, length, size, generator=generator) for length in lengths
    ]
    padding = torch.rand(batch, keys, generator=generator) < 0.2
    padding[-1:] = batch > 1
    return *made, padding


def future_mask(length):
    return torch.full((length, length), -torch.inf).triu(1)


@pytest.mark.parametrize("epsilon", [0.0, 1e-4, 0.25, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_gradients_are_those_of_float64(shape, epsilon):
    *inputs, grad, padding = tensors(shape)
    epsilons = torch.full((shape[1],), epsilon)
    mask = future_mask(shape[2]) if shape[2] == shape[3] else None
    scale = shape[-1] ** -0.5
    ours = [tensor.clone().requires_grad_() for tensor in (*inputs, epsilons)]
    theirs = [tensor.double().requires_grad_() for tensor in (*inputs, epsilons)]
    output = attention(*ours, padding, mask, scale=scale)
    truth = reference.attention(*theirs, padding, mask, scale=scale)
    torch.testing.assert_close(output.double(), truth, atol=3e-6, rtol=0)
    output.backward(grad)
    truth.backward(grad.double())
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, atol=3e-5, rtol=3e-5)


def test_each_head_has_its_own_epsilon_and_one_can_be_for_all():
    *inputs, _, _ = tensors((2, 4, 20, 25, 16))
    epsilons = torch.tensor([0.0, 0.3, 0.5, 1.0])
    output = attention(*inputs, epsilons)
    for head, epsilon in enumerate(epsilons):
        alone = attention(*(tensor[:, head : head + 1] for tensor in inputs), float(epsilon))
        torch.testing.assert_close(output[:, head : head + 1], alone, atol=1e-6, rtol=0)
    shared = torch.tensor([0.3], requires_grad=True)
    each = torch.full((4,), 0.3, requires_grad=True)
    for epsilon in (shared, each):
        attention(*inputs, epsilon).square().sum().backward()
    torch.testing.assert_close(shared.grad, each.grad.sum().view(1), atol=0, rtol=1e-5)


def test_queries_without_keys_get_zeros_and_zero_gradients():
    *inputs, grad, _ = tensors((2, 2, 5, 6, 8))
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[0] = True
    mask = torch.zeros(5, 6)
    mask[3] = -torch.inf
    inputs = [tensor.requires_grad_() for tensor in inputs]
    epsilon = torch.full((2,), 0.4, requires_grad=True)
    output = attention(*inputs, epsilon, padding, mask)
    assert (output[0] == 0).all()
    assert (output[1, :, 3] == 0).all()
    assert (output[1, :, [0, 1, 2, 4]] != 0).all()
    output.backward(grad)
    query, key, value = inputs
    assert (query.grad[0] == 0).all()
    assert (query.grad[1, :, 3] == 0).all()
    assert (key.grad[0] == 0).all()
    assert (value.grad[0] == 0).all()
    assert all(tensor.grad.isfinite().all() for tensor in (*inputs, epsilon))


def test_a_query_that_is_no_number_spoils_itself_alone():
    *inputs, _, _ = tensors((1, 2, 20, 9, 8))
    clean = attention(*inputs, 0.5)
    inputs[0][0, 1, 4, 2] = torch.nan
    output = attention(*inputs, 0.5)
    assert output[0, 1, 4].isnan().all()
    output[0, 1, 4] = clean[0, 1, 4]
    assert torch.equal(output, clean)


def test_an_epsilon_that_is_nan_spoils_its_head_alone():
    *inputs, grad, _ = tensors((2, 3, 20, 9, 8))
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[0] = True
    results = []
    for epsilons in ([0.3, torch.nan, 0.8], [0.3, 0.5, 0.8]):
        epsilon = torch.tensor(epsilons, requires_grad=True)
        ours = [tensor.clone().requires_grad_() for tensor in inputs]
        output = attention(*ours, epsilon, padding)
        output.backward(grad)
        results.append([output, *(tensor.grad for tensor in ours)])
        results.append(epsilon.grad)
    harmed, for_harmed, clean, for_clean = results
    for tensor, same in zip(harmed, clean, strict=True):
        assert (tensor[0] == 0).all()  # no query has a key
        assert tensor[1, 1].isnan().all()
        assert torch.equal(tensor[:, [0, 2]], same[:, [0, 2]])
    assert for_harmed[1].isnan()
    assert torch.equal(for_harmed[[0, 2]], for_clean[[0, 2]])


def test_a_key_that_the_mask_leaves_out_harms_no_query_even_if_it_is_nan():
    *inputs, _, _ = tensors((1, 2, 20, 20, 8))
    clean = attention(*inputs, 0.5, causal=True)
    inputs[1][0, 0, 11] = torch.nan
    output = attention(*inputs, 0.5, causal=True)
    assert output[0, 0, 11:].isnan().all()
    assert torch.equal(output[0, 0, :11], clean[0, 0, :11])
    assert torch.equal(output[0, 1], clean[0, 1])


@pytest.mark.parametrize("epsilon", [-torch.inf, -3.0, 1.001, 5.0, 1e30, torch.inf])
def test_an_epsilon_out_of_range_ends_in_some_result(epsilon):
    *inputs, grad, padding = tensors((2, 2, 17, 33, 20))
    epsilons = torch.tensor([epsilon, 0.5], requires_grad=True)
    ours = [tensor.clone().requires_grad_() for tensor in inputs]
    output = attention(*ours, epsilons, padding)
    output.backward(grad)
    assert torch.equal(output[:, 1], attention(*inputs, 0.5, padding)[:, 1])


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, torch.tensor([0.3]), torch.tensor([0.2, 0.7])])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"padding": True}, {"mask": True}])
def test_second_derivatives_are_those_of_float64(epsilon, options):
    *made, _ = tensors((2, 2, 19, 21, 8))
    reference.check_second_derivatives(attention, made, epsilon, **options)


def test_gradients_of_many_outputs_at_once_are_those_of_one_after_another():
    *inputs, grad, _ = tensors((1, 2, 3, 4, 8))
    leaf = inputs[0].requires_grad_()
    output = attention(*inputs, 0.3)
    grads = torch.stack([grad, grad.flip(0, 3), -grad])
    (together,) = torch.autograd.grad(output, leaf, grads, is_grads_batched=True, retain_graph=True)
    for one, result in zip(grads, together, strict=True):
        (expected,) = torch.autograd.grad(output, leaf, one, retain_graph=True)
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("order", [(2, 0, 1, 3), (0, 2, 1, 3), (3, 0, 1, 2)])
def test_any_strides_are_taken(order):
    *inputs, grad, padding = tensors((3, 2, 18, 11, 8))
    back = [order.index(i) for i in range(4)]
    results = []
    for stored in (False, True):
        ours = [
            t.permute(order).contiguous().permute(back) if stored else t.clone() for t in inputs
        ]
        ours = [tensor.requires_grad_() for tensor in ours]
        output = attention(*ours, 0.3, padding)
        output.backward(grad.permute(order).contiguous().permute(back) if stored else grad)
        results.append([output, *(tensor.grad for tensor in ours)])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_an_expanded_gradient_is_taken():
    *inputs, _, _ = tensors((2, 2, 4, 4, 8))
    query = inputs[0].requires_grad_()
    attention(*inputs, 0.4).sum().backward()
    one = query.grad.clone()
    query.grad = None
    attention(*inputs, 0.4).backward(torch.ones(2, 2, 4, 8))
    assert torch.equal(one, query.grad)


@pytest.mark.parametrize("shape", [(6, 4, 40, 50, 16), (1, 1, 90, 500, 16)])
def test_threads_change_no_bit(monkeypatch, shape):
    *inputs, grad, padding = tensors(shape)
    results = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(library, "threads_for", lambda *_, threads=threads: threads)
        epsilons = torch.full(shape[1:2], 0.3)
        ours = [t.clone().requires_grad_() for t in (*inputs, epsilons)]
        output = attention(*ours, padding)
        output.backward(grad)
        results.append([output, *(tensor.grad for tensor in ours)])
    for result in results[1:]:
        assert all(torch.equal(*pair) for pair in zip(result, results[0], strict=True))


@pytest.mark.parametrize(
    "shape", [(0, 2, 3, 4, 8), (2, 0, 3, 4, 8), (2, 2, 0, 4, 8), (2, 2, 3, 0, 8)]
)
def test_empty_tensors_are_taken(shape):
    *inputs, grad, padding = tensors(shape)
    inputs = [tensor.requires_grad_() for tensor in inputs]
    output = attention(*inputs, torch.full((shape[1],), 0.5), padding)
    assert output.shape == inputs[0].shape
    assert (output == 0).all()
    output.backward(grad)
    assert all((tensor.grad == 0).all() for tensor in inputs)


def test_saved_tensors_may_come_back_in_other_places():
    *inputs, grad, _ = tensors((2, 3, 20, 9, 8))

    def elsewhere(tensor):
        memory = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)[
            1:
        ]  # not aligned as torch does
        return memory.copy_(tensor.reshape(-1)).view(tensor.shape)

    results = []
    for unpack in (lambda tensor: tensor, elsewhere):
        ours = [tensor.clone().requires_grad_() for tensor in inputs]
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
            attention(*ours, 0.3).backward(grad)
        results.append([tensor.grad for tensor in ours])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize(("queries", "keys"), [(20, 20), (1, 7), (5, 30)])
def test_causal_is_a_mask_of_the_future(queries, keys):
    *inputs, _, padding = tensors((3, 2, queries, keys, 8))
    truth = reference.attention(
        *(t.double() for t in inputs), torch.full((2,), 0.4).double(), padding, causal=True
    )
    output = attention(*inputs, 0.4, padding, causal=True)
    torch.testing.assert_close(output.double(), truth, atol=3e-6, rtol=0)


def test_what_is_kept_for_the_backward_pass_is_the_support():
    query, key, value, _, padding = tensors((2, 2, 33, 300, 16), scale=2.0)
    scores = (query @ key.mT).masked_fill(padding[:, None, None], -torch.inf)
    probs = entmax(scores, 1.6)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        attention(query.requires_grad_(), key, value, 0.6, padding)
    others = [tensor for tensor in kept if all(tensor is not one for one in (query, key, value))]
    number = int((probs > 0).sum())
    assert 0 < number < 0.1 * probs.numel()
    # A key and a probability of each, and where each query's begin
    starts = 2 * 2 * -(-33 // library.lanes()) * library.lanes() + 1
    assert sorted(tensor.numel() for tensor in others) == sorted([starts, number, number])


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 0.5, 1.0])
def test_masks_of_all_kinds_and_scores_of_any_size(epsilon, spread):
    query, key, value, grad, padding = tensors((2, 3, 21, 45, 12), seed=3)
    generator = torch.Generator().manual_seed(4)
    mask = torch.randn(21, 45, generator=generator)
    mask[torch.rand(21, 45, generator=generator) < 0.4] = -torch.inf
    mask[5] = -torch.inf
    padding[-1, 3:30] = False
    key[..., 40:, :] = key[..., 39:40, :]  # equal scores, where masks do not part them
    epsilons = torch.full((3,), epsilon)
    ours = [tensor.clone().requires_grad_() for tensor in (spread * query, key, value, epsilons)]
    theirs = [tensor.detach().double().requires_grad_() for tensor in ours]
    output = attention(*ours, padding, mask)
    truth = reference.attention(*theirs, padding, mask.double())
    # Scores of some 3 * spread are rounded to float32
    atol = 2e-6 * max(5.0, 3 * spread)
    torch.testing.assert_close(output.double(), truth, atol=atol, rtol=0)
    output.backward(grad)
    truth.backward(grad.double())
    for one, other in zip(ours[1:3], theirs[1:3], strict=True):
        size = other.grad.abs().max().item()
        assert (one.grad.double() - other.grad).abs().max().item() <= 2e-4 * max(1.0, size)


@pytest.mark.parametrize(
    ("place", "shape", "message"),
    [
        (0, (2, 3, 8), "query must be"),
        (1, (1, 3, 4, 8), "key must be"),
        (2, (1, 2, 4, 7), "value must be"),
        (3, (3,), "epsilon must be a number, or floating point of shape"),
        (4, (1, 5), "key_padding_mask must be"),
        (5, (3, 5), "attn_mask must be"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(place, shape, message):
    *inputs, _, _ = tensors((1, 2, 3, 4, 8))
    arguments = [*inputs, torch.full((2,), 0.5), None, None]
    arguments[place] = torch.zeros(shape, dtype=torch.bool if place == 4 else torch.float32)
    with pytest.raises(ValueError, match=message):
        attention(*arguments)


def test_it_is_for_float32_on_a_cpu():
    assert native_attention.takes(torch.zeros(1, 1, 1, 8))
    assert not native_attention.takes(torch.zeros(1, 1, 1, 8, dtype=torch.float64))
    assert not native_attention.takes(torch.zeros(1, 1, 1, 8, dtype=torch.bfloat16))


@pytest.mark.parametrize("queries", [5, 48])
def test_where_there_are_fewer_keys_than_queries_the_first_see_none(queries):
    query, key, value = torch.randn(1, 2, queries, 4), *torch.randn(2, 1, 2, 2, 4)
    query.requires_grad_()
    output = native_attention.attention(query, key, value, 0.5, causal=True)
    assert torch.equal(output[:, :, :-2], torch.zeros(1, 2, queries - 2, 4))
    # The last but one sees the first key alone
    torch.testing.assert_close(output[:, :, -2], value[:, :, 0])
    output.sum().backward()
    assert not query.grad[:, :, :-2].any()


@pytest.mark.parametrize(("number", "distance"), [(65536, -0.7), (8192, -0.99), (2048, -0.998)])
def test_many_keys_that_are_equal_are_all_kept_or_none(number, distance):
    key = torch.full((1, 1, number + 1, 1), distance)
    value = torch.zeros(1, 1, number + 1, 1)
    key[0, 0, 0], value[0, 0, 0] = 0.0, 1.0
    output = native_attention.attention(torch.ones(1, 1, 16, 1), key, value, 1.0)
    # Sparsemax: those of the support sum to 1, the first is as much above the others as its score
    expected = (1 - number * distance) / (number + 1)
    torch.testing.assert_close(output, torch.full_like(output, expected), atol=2e-5, rtol=0)


def test_a_backward_pass_of_no_support_is_zero():
    tensors = torch.randn(3, 1, 1, 4, 4).unbind(0)
    leaves = [one.requires_grad_() for one in tensors]
    padding = torch.ones(1, 4, dtype=torch.bool)
    output = native_attention.attention(*leaves, 0.5, key_padding_mask=padding)
    output.sum().backward()
    assert not any(one.grad.any() for one in leaves)
