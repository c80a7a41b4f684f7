"""Native attention where torch transforms, compiles and exports: the numbers of plain calls."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from fairseq_entmax.kernels.native import attention as native
from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler

SENTENCES, HEADS, QUERIES, KEYS, SIZE = 3, 2, 5, 7, 8
every_kind = pytest.mark.parametrize("kind", ["", "tv", "pnorm"])


class Inputs(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor
    epsilon: Tensor
    strength: Tensor


def some_inputs() -> Inputs:
    generator = torch.Generator().manual_seed(5)
    shapes = [(SENTENCES, HEADS, positions, SIZE) for positions in (QUERIES, KEYS, KEYS)]
    three = (torch.randn(shape, generator=generator) for shape in shapes)
    return Inputs(*three, torch.tensor([0.3, 0.6]), torch.tensor([0.2, 0.9]))


def some_padding():
    padding = torch.zeros(SENTENCES, KEYS, dtype=torch.bool)
    padding[1, 5:] = True
    return padding


def attend(kind, inputs, padding):
    *given, strength = inputs
    if not kind:
        return native.attention(*given, padding, scale=0.3)
    *three, epsilon = given
    return native.structured_attention(*three, kind, epsilon, strength, padding, scale=0.3)


def loss_of(kind, padding):
    return lambda *inputs: attend(kind, inputs, padding).pow(2).sum()


def count(kind):
    """How many of the inputs have gradients."""
    return 5 if kind else 4


def plain_gradients(kind, inputs, padding):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    return torch.autograd.grad(loss_of(kind, padding)(*leaves), leaves[: count(kind)])


def assert_all_close(found, expected, tolerance=1e-4):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@every_kind
def test_the_gradient_of_torch_func_is_that_of_a_backward_pass(kind):
    inputs, padding = some_inputs(), some_padding()
    gradient = torch.func.grad(loss_of(kind, padding), argnums=tuple(range(count(kind))))
    assert_all_close(gradient(*inputs), plain_gradients(kind, inputs, padding))


@every_kind
@pytest.mark.parametrize("masks_differ", [False, True])
def test_gradients_of_each_sentence_are_those_of_the_sentences_alone(kind, masks_differ):
    inputs, padding = some_inputs(), some_padding()
    padding = padding if masks_differ else torch.zeros_like(padding)
    places = tuple(range(count(kind)))

    def gradient(padding, *inputs):
        return torch.func.grad(loss_of(kind, padding), argnums=places)(*inputs)

    three = [tensor[:, None] for tensor in inputs[:3]]
    if masks_differ:
        found = torch.vmap(gradient, (0, 0, 0, 0, None, None))(
            padding[:, None], *three, *inputs[3:]
        )
    else:
        found = torch.vmap(gradient, (None, 0, 0, 0, None, None))(padding[:1], *three, *inputs[3:])
    alone = [
        plain_gradients(kind, (*(one[[at]] for one in inputs[:3]), *inputs[3:]), padding[[at]])
        for at in range(SENTENCES)
    ]
    assert_all_close(found, [torch.stack(each) for each in zip(*alone, strict=True)])


@every_kind
def test_vmap_over_epsilon_is_one_call_after_another(kind):
    inputs, padding = some_inputs(), some_padding()
    values = torch.tensor([[0.2, 0.4], [0.9, 0.1], [0.5, 0.5]])
    found = torch.vmap(lambda value: attend(kind, inputs._replace(epsilon=value), padding))(values)
    expected = [attend(kind, inputs._replace(epsilon=value), padding) for value in values]
    assert_all_close(found, expected, 1e-6)


@every_kind
@pytest.mark.parametrize("place", [0, 3])
def test_second_derivatives_of_torch_func_are_those_of_autograd(kind, place):
    inputs, padding = some_inputs(), some_padding()

    def function(one):
        return loss_of(kind, padding)(*inputs[:place], one, *inputs[place + 1 :])

    expected = torch.autograd.functional.hessian(function, inputs[place])
    found = torch.func.jacrev(torch.func.grad(function))(inputs[place])
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


@every_kind
def test_compiled_attention_is_one_graph_with_the_same_gradients(kind):
    inputs, padding = some_inputs(), some_padding()
    torch._dynamo.reset()
    compiled = torch.compile(loss_of(kind, padding), backend="aot_eager", fullgraph=True)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    found = torch.autograd.grad(compiled(*leaves), leaves[: count(kind)])
    assert_all_close(found, plain_gradients(kind, inputs, padding), 1e-6)


def test_forward_mode_is_refused_with_what_to_take_instead():
    inputs = some_inputs()
    with pytest.raises(
        NotImplementedError, match=r"take reverse mode, such as torch\.func\.jacrev"
    ):
        torch.func.jvp(lambda *given: attend("", given, None), inputs, inputs)
