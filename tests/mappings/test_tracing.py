"""Mappings and losses where torch traces, transforms or compiles: the numbers of plain calls.

References are plain calls, one after another; for second derivatives finite differences.
"""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from fairseq_entmax.mappings import (
    entmax,
    fusedmax,
    oscarmax,
    prox_oscar,
    prox_tv,
    sq_pnorm_max,
)
from fairseq_entmax.mappings.losses import entmax_loss, fenchel_young_loss
from fairseq_entmax.mappings.modules import Entmax

HEADS, KEYS = 3, 5


class Case(NamedTuple):
    """A function of scores ``(samples, heads, queries, keys)`` and of parameters, all with gradients."""

    function: object
    parameters: tuple


def numbers(*values):
    return tuple(torch.full((HEADS, 1, 1), value, dtype=torch.float64) for value in values)


def loss_of(scores, alpha=1.4):
    target = torch.arange(scores.shape[:-1].numel()).view(scores.shape[:-1]) % scores.size(-1)
    return entmax_loss(scores, target, alpha)


def fenchel_young(scores):
    alpha = torch.linspace(1.0, 2.0, scores.size(-2), dtype=scores.dtype)
    probs = entmax(scores, alpha[:, None])
    uniform = torch.full_like(scores, 1 / scores.size(-1))
    return fenchel_young_loss(scores, probs, uniform, alpha)


CASES = {
    "softmax": Case(lambda scores: entmax(scores, 1.0), ()),
    "entmax15": Case(lambda scores: entmax(scores, 1.5), ()),
    "entmax": Case(entmax, numbers(1.3)),
    "fusedmax": Case(fusedmax, numbers(0.3, 1.4)),
    "oscarmax": Case(oscarmax, numbers(0.05, 1.4)),
    "sq_pnorm_max": Case(sq_pnorm_max, numbers(1.5, 1.2)),
    "prox_tv": Case(prox_tv, numbers(0.3)),
    "prox_oscar": Case(prox_oscar, numbers(0.05)),
    "entmax_loss": Case(loss_of, ()),
    "softmax_loss": Case(lambda scores: loss_of(scores, 1.0), ()),
    "fenchel_young_loss": Case(fenchel_young, ()),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
FORWARD_MODE = ("softmax", "entmax15", "entmax")


def random_scores(samples=2, queries=4):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(samples, HEADS, queries, KEYS, dtype=torch.float64, generator=generator)


def total(case):
    """A number, of which scores and parameters have gradients."""

    def function(scores, *parameters):
        return case.function(scores, *parameters).pow(3).sum()

    return function


def plain_gradients(case, scores):
    leaves = [tensor.clone().requires_grad_() for tensor in (scores, *case.parameters)]
    return torch.autograd.grad(total(case)(*leaves), leaves)


def assert_all_close(found, expected, tolerance=1e-11):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


# -- torch.func ---------------------------------------------------------------------------


@every_case
def test_the_gradient_of_torch_func_is_that_of_a_backward_pass(case):
    scores = random_scores()
    places = tuple(range(1 + len(case.parameters)))
    found = torch.func.grad(total(case), argnums=places)(scores, *case.parameters)
    assert_all_close(found, plain_gradients(case, scores))


@every_case
def test_gradients_of_each_sample_are_those_of_the_samples_alone(case):
    scores = random_scores(3)
    places = tuple(range(1 + len(case.parameters)))
    gradient = torch.func.grad(total(case), argnums=places)
    found = torch.vmap(gradient, (0, *(None for _ in case.parameters)))(scores, *case.parameters)
    alone = [plain_gradients(case, sample) for sample in scores]
    assert_all_close(found, [torch.stack(each) for each in zip(*alone, strict=True)])


@every_case
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_vmap_over_any_dimension_is_one_call_after_another(case, dim):
    scores = random_scores()
    found = torch.vmap(case.function, (dim, *(None for _ in case.parameters)), out_dims=0)(
        scores.movedim(0, dim), *case.parameters
    )
    expected = torch.stack([case.function(sample, *case.parameters) for sample in scores])
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(
    "function", [entmax, fusedmax, oscarmax, sq_pnorm_max, prox_tv, prox_oscar]
)
def test_vmap_over_a_parameter_is_one_call_after_another(function):
    scores, values = random_scores(), torch.linspace(1.1, 1.9, 4, dtype=torch.float64)
    found = torch.vmap(lambda value: function(scores, value))(values)
    expected = torch.stack([function(scores, value.item()) for value in values])
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def test_vmaps_stand_inside_each_other():
    scores = random_scores()
    found = torch.vmap(torch.vmap(lambda rows: entmax(rows, 1.3)))(scores)
    torch.testing.assert_close(found, entmax(scores, 1.3), atol=1e-12, rtol=1e-12)


def differences(case, scores, step=1e-6):
    """The derivative of the plain gradient of scores, by its own first number of each sample."""
    moved = torch.zeros_like(scores)
    moved[..., 0, 1] = step
    above, below = (plain_gradients(case, scores + side)[0] for side in (moved, -moved))
    return (above - below) / (2 * step), moved / step


@every_case
def test_the_derivative_of_a_gradient_is_that_of_finite_differences(case):
    scores = random_scores(1)
    expected, direction = differences(case, scores)
    gradient = torch.func.grad(lambda one: total(case)(one, *case.parameters))
    _, pulled = torch.func.vjp(gradient, scores)
    # A Hessian is symmetric
    torch.testing.assert_close(pulled(direction)[0], expected, atol=1e-6, rtol=1e-6)
    jacobian = torch.func.jacrev(gradient)(scores)
    along = (jacobian * direction).sum((-1, -2, -3, -4))
    torch.testing.assert_close(along, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", FORWARD_MODE)
def test_alpha_entmax_has_forward_mode_and_with_it_a_hessian(name):
    case, scores = CASES[name], random_scores(1)
    expected, direction = differences(case, scores)
    hessian = torch.func.hessian(lambda one: total(case)(one, *case.parameters))(scores)
    along = (hessian * direction).sum((-1, -2, -3, -4))
    torch.testing.assert_close(along, expected, atol=1e-6, rtol=1e-6)


def test_the_derivative_along_alpha_in_forward_mode_is_that_of_finite_differences():
    scores, (alpha,), step = random_scores(), numbers(1.3), 1e-6
    _, found = torch.func.jvp(lambda one: entmax(scores, one), (alpha,), (torch.ones_like(alpha),))
    expected = (entmax(scores, alpha + step) - entmax(scores, alpha - step)) / (2 * step)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in CASES if name not in FORWARD_MODE])
def test_other_forward_modes_are_refused_with_what_to_take_instead(name):
    case, scores = CASES[name], random_scores()
    with pytest.raises(
        NotImplementedError, match=r"take reverse mode, such as torch\.func\.jacrev"
    ):
        torch.func.jvp(lambda one: case.function(one, *case.parameters), (scores,), (scores,))


# -- what compiles and records ------------------------------------------------------------------


@every_case
def test_a_compiled_mapping_is_one_graph_with_the_same_numbers(case):
    scores, function = random_scores(), total(case)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    for used in (scores, random_scores(5, 2)):
        leaves = [tensor.clone().requires_grad_() for tensor in (used, *case.parameters)]
        found = torch.autograd.grad(compiled(*leaves), leaves)
        assert_all_close(found, plain_gradients(case, used))


@pytest.mark.slow
def test_inductor_compiles_entmax_with_a_tensor_alpha():
    case, scores = CASES["entmax"], random_scores()
    torch._dynamo.reset()
    leaves = [tensor.clone().requires_grad_() for tensor in (scores, *case.parameters)]
    found = torch.autograd.grad(torch.compile(total(case), fullgraph=True)(*leaves), leaves)
    assert_all_close(found, plain_gradients(case, scores))


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_mapping_is_one_operation_for_batches_of_any_size(strict):
    mapping = nn.Sequential(Entmax(num_alphas=HEADS)).double()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(
        mapping, (random_scores(),), dynamic_shapes=({0: batch},), strict=strict
    )
    names = [str(node.target) for node in program.graph.nodes]
    assert names.count("fairseq_entmax.entmax.default") == 1
    scores = random_scores(7)
    torch.testing.assert_close(program.module()(scores), mapping(scores))


@every_case
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_make_fx_records_gradients_that_are_right_for_other_scores(case, mode):
    from torch.fx.experimental.proxy_tensor import make_fx

    def gradients(*leaves):
        return torch.autograd.grad(total(case)(*leaves), leaves)

    leaves = [tensor.clone().requires_grad_() for tensor in (random_scores(), *case.parameters)]
    graph = make_fx(gradients, tracing_mode=mode)(*leaves)
    other = random_scores() * 2
    found = graph(other.clone().requires_grad_(), *leaves[1:])
    assert_all_close(found, plain_gradients(case, other))


@every_case
def test_fake_scores_give_fake_results_of_the_right_shape(case):
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    expected = case.function(random_scores(), *case.parameters)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        scores = mode.from_tensor(random_scores())
        found = case.function(scores, *map(mode.from_tensor, case.parameters))
    assert isinstance(found, FakeTensor)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


def test_a_parameter_out_of_range_is_no_error_where_its_values_are_not_looked_at():
    alpha = torch.tensor(3.0)
    with pytest.raises(ValueError, match="alpha must be from 1"):
        entmax(torch.zeros(3), alpha)
    assert torch.vmap(lambda scores: entmax(scores, alpha))(torch.zeros(2, 3)).shape == (2, 3)


def test_a_target_out_of_range_is_an_error_also_where_it_is_compiled():
    torch._dynamo.reset()
    compiled = torch.compile(entmax_loss, backend="aot_eager", fullgraph=True)
    with pytest.raises(ValueError, match="target must be from 0 to 4"):
        compiled(torch.zeros(2, 5), torch.tensor([1, 5]))
