"""The Triton kernels where torch transforms and compiles: the numbers of plain calls."""

import pytest
import torch

from fairseq_entmax import kernels
from fairseq_entmax.mappings import entmax
from tests.kernels.triton.support import DEVICE

pytest.importorskip("triton")
from fairseq_entmax.kernels.triton import attention as triton_attention


@pytest.fixture(autouse=True)
def _triton(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, kernels.TRITON)


def of_rows(scores, alpha):
    return entmax(scores, alpha).pow(2).sum()


def of_attention(query, key, epsilon):
    return triton_attention.attention(query, key, key, epsilon, causal=True, scale=0.3).pow(2).sum()


def numbers(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(DEVICE)


FUNCTIONS = {
    "rows": (of_rows, (numbers(3, 2, 6), torch.tensor([1.3, 1.6]).view(2, 1).to(DEVICE))),
    "attention": (
        of_attention,
        (numbers(3, 2, 3, 8), numbers(3, 2, 4, 8), torch.tensor([0.3, 0.6]).to(DEVICE)),
    ),
}
every_function = pytest.mark.parametrize(("function", "inputs"), FUNCTIONS.values(), ids=FUNCTIONS)


def plain_gradients(function, inputs):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    return torch.autograd.grad(function(*leaves), leaves)


def assert_all_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@every_function
def test_the_gradient_of_torch_func_is_that_of_a_backward_pass(function, inputs):
    found = torch.func.grad(function, argnums=tuple(range(len(inputs))))(*inputs)
    assert_all_close(found, plain_gradients(function, inputs))


@every_function
def test_gradients_of_each_sample_are_those_of_the_samples_alone(function, inputs):
    *samples, parameter = inputs
    gradient = torch.func.grad(function, argnums=tuple(range(len(inputs))))
    found = torch.vmap(gradient, (*(0 for _ in samples), None))(
        *(one[:, None] for one in samples), parameter
    )
    alone = [
        plain_gradients(function, (*(one[[at]] for one in samples), parameter)) for at in range(3)
    ]
    assert_all_close(found, [torch.stack(each) for each in zip(*alone, strict=True)])


@every_function
def test_compiled_it_is_one_graph_with_the_same_gradients(function, inputs):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    assert_all_close(
        torch.autograd.grad(compiled(*leaves), leaves), plain_gradients(function, inputs)
    )


@pytest.mark.skipif(
    not hasattr(torch.library, "opcheck"), reason="torch.library.opcheck is in torch 2.4 and later"
)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_torch_finds_nothing_wrong_with_its_operators(dropout):
    operators = torch.ops.fairseq_entmax
    query, key = numbers(2, 3, 5, 8), numbers(2, 3, 20, 8)
    epsilon = torch.full((3,), 0.4, device=DEVICE)
    given = (query, key, key * 2, epsilon, 0.0, None, 0.0, None, None, True, 0.3)
    given = (*given, dropout, torch.tensor([7]) if dropout else None, "")
    for keeps in (False, True):
        results = torch.library.opcheck(operators.triton_attention.default, (*given, keeps))
        assert set(results.values()) == {"SUCCESS"}
    output, *kept = operators.triton_attention(*given, True)
    behind = (output, *kept, output, True, True, True, True, False)
    results = torch.library.opcheck(operators.triton_attention_gradients.default, (*given, *behind))
    assert set(results.values()) == {"SUCCESS"}
