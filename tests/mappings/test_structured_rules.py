"""Shapes, dtypes and dimensions of the mappings with structure; and what they refuse."""

import re

import pytest
import torch

from fairseq_entmax.kernels.structure import Structure
from fairseq_entmax.mappings import fusedmax, oscarmax, prox_oscar, prox_tv, sq_pnorm_max
from fairseq_entmax.mappings.structured import (
    check_gamma,
    check_p,
    check_strength,
    map_structured,
)
from tests.mappings.reference import random_rows
from tests.mappings.structured_cases import (
    INF,
    NAN,
    every_case,
    gapped_rows,
    gradients_of,
    largest_error,
)

# -- precision and shape ------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(case, dtype):
    scores, grad = random_rows(20, 64, 1.0, dtype=dtype), random_rows(20, 64, 1.0, 2, dtype)
    probs = case.function(scores, case.shape, case.strength)
    full = case.function(scores.float(), case.shape, case.strength)
    assert probs.dtype == dtype
    assert torch.equal(probs, full.to(dtype))
    values = torch.tensor(case.shape), torch.tensor(case.strength)
    half = gradients_of(case.function, grad, scores, *values)
    full = gradients_of(case.function, grad.float(), scores.float(), *values)
    assert torch.equal(half[0], full[0].to(dtype))
    assert half[1:] == full[1:]


@every_case
def test_a_parameter_in_half_precision_is_used_as_it_is(case):
    scores = random_rows(5, 30, 1.0)
    shape = torch.tensor(case.shape).bfloat16()
    strength = torch.tensor(case.strength).half()
    truth = case.truth(scores, shape.double(), strength.double())
    assert largest_error(case.function(scores, shape, strength), truth) <= 1e-12


@every_case
@pytest.mark.parametrize("dim", [-3, -2, -1, 0, 1, 2])
def test_every_dimension_can_hold_the_keys(case, dim):
    scores = random_rows(2 * 3, 5, 1.0).view(2, 3, 5)
    like = [2, 3, 5]
    like[dim] = 1
    generator = torch.Generator().manual_seed(0)
    share = torch.rand(like, dtype=torch.float64, generator=generator)
    shape, strength = 1.1 + 0.8 * share, 0.05 + share.flip(0)
    moved = [value.movedim(dim, -1) for value in (scores, shape, strength)]
    truth = case.truth(*moved).movedim(-1, dim)
    assert largest_error(case.function(scores, shape, strength, dim), truth) <= 1e-12
    in_float32 = case.function(scores.float(), shape.float(), strength.float(), dim)
    assert largest_error(in_float32, truth) <= 2e-6


@every_case
@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (1, 3, 1), (2, 1, 1), (2, 3, 1)])
def test_parameters_broadcast_as_torch_does(case, shape):
    scores = random_rows(2 * 3, 9, 1.0).view(2, 3, 9)
    share = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values = (1.1 + 0.8 * share, 0.05 + share)
    truth = case.truth(scores, *values)
    assert largest_error(case.function(scores, *values), truth) <= 1e-12
    assert largest_error(case.function(scores.float(), *values), truth) <= 2e-6


@every_case
def test_scores_need_not_be_contiguous(case):
    wide = random_rows(10, 12, 1.0)
    for scores in (wide.t(), wide[::2, 1::3], wide[:, :1].expand(10, 6), wide.flip(0)[2:, :7]):
        for values, tolerance in ((scores, 1e-14), (scores.float(), 2e-7)):
            ours = case.function(values, case.shape, case.strength)
            expected = case.function(values.contiguous(), case.shape, case.strength)
            assert largest_error(ours, expected.double()) <= tolerance


@every_case
def test_a_gradient_need_not_be_contiguous(case):
    scores = random_rows(5, 8, 1.0)
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 1e-6)):
        for grad in (random_rows(8, 5, 1.0).t(), random_rows(5, 1, 1.0).expand(5, 8)):
            values = (scores.to(dtype), torch.tensor(case.shape), torch.tensor(case.strength))
            grad = grad.to(dtype)
            ours = gradients_of(case.function, grad, *values)
            expected = gradients_of(case.function, grad.contiguous(), *values)
            for one, other in zip(ours, expected, strict=True):
                assert largest_error(one, other.double()) <= tolerance


@every_case
def test_what_is_given_is_left_as_it_was(case):
    for dtype in (torch.float16, torch.float32, torch.float64):
        scores = gapped_rows().to(dtype).requires_grad_()
        shape = torch.full((6, 1), case.shape, requires_grad=True)
        strength = torch.full((6, 1), case.strength, requires_grad=True)
        given = [value.detach().clone() for value in (scores, shape, strength)]
        probs = case.function(scores, shape, strength)
        grad = random_rows(6, 12, 1.0, 2, dtype)
        kept_grad, kept_probs = grad.clone(), probs.detach().clone()
        probs.backward(grad, retain_graph=True)
        first = scores.grad.clone()
        scores.grad = None
        probs.backward(grad)
        assert torch.equal(scores.grad, first)
        for value, before in zip((scores, shape, strength), given, strict=True):
            assert torch.equal(value, before)
        assert torch.equal(grad, kept_grad)
        assert torch.equal(probs.detach(), kept_probs)


@every_case
@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (0, 0), (2, 0, 3)])
def test_no_scores_give_no_probabilities_and_no_gradients(case, shape):
    for dtype in (torch.float32, torch.float64):
        scores = torch.empty(shape, dtype=dtype, requires_grad=True)
        values = [torch.tensor(v, requires_grad=True) for v in (case.shape, case.strength)]
        probs = case.function(scores, *values)
        assert probs.shape == shape
        probs.sum().backward()
        assert scores.grad.shape == shape
        assert [value.grad.item() for value in values] == [0.0, 0.0]


@every_case
@pytest.mark.parametrize("score", [-1e30, -7.5, 0.0, 88.0, 1e30])
def test_a_single_key_gets_all_the_weight_and_no_gradients(case, score):
    values = (
        torch.full((2, 1), score),
        torch.tensor(case.shape, dtype=torch.float64),
        torch.tensor(case.strength, dtype=torch.float64),
    )
    assert case.function(*values).tolist() == [[1.0], [1.0]]
    for gradient in gradients_of(case.function, torch.tensor([[2.0], [5.0]]), *values):
        assert (gradient == 0.0).all()


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_row_with_every_key_masked_gives_zeros_and_adds_nothing(case, dtype):
    scores, grad = random_rows(3, 6, 1.0, 1, dtype), random_rows(3, 6, 1.0, 2, dtype)
    values = torch.tensor(case.shape).double(), torch.tensor(case.strength).double()
    alone = gradients_of(case.function, grad[[0, 2]], scores[[0, 2]], *values)
    scores[1] = -INF
    assert case.function(scores, *values)[1].tolist() == [0.0] * 6
    ours = gradients_of(case.function, grad, scores, *values)
    assert ours[0][1].tolist() == [0.0] * 6
    assert largest_error(ours[0][[0, 2]], alone[0].double()) <= 1e-6
    for one, other in zip(ours[1:], alone[1:], strict=True):
        assert one.item() == pytest.approx(other.item(), abs=1e-6)


@every_case
def test_numbers_and_tensors_give_the_same(case):
    scores = gapped_rows()
    number = case.function(scores, case.shape, case.strength)
    epsilon = case.shape - 1.0
    as_tensors = torch.tensor([case.shape, case.strength], dtype=torch.float64).unbind()
    assert largest_error(case.function(scores, *as_tensors), number) <= 1e-13
    for values in ((epsilon, case.strength), (as_tensors[0] - 1.0, as_tensors[1])):
        assert largest_error(map_structured(scores, Structure(case.kind, *values)), number) <= 1e-13


# -- errors ---------------------------------------------------------------------------------------------

STRENGTHS, ALPHAS, PS, GAMMAS = "0 or more", "from 1 .* to 2", "above 1, and 2", "above 0"
WRONG_NUMBERS = {
    "tv": ("tv", lambda z, v: fusedmax(z, v), (-1.0, -1e-9, NAN, INF, -INF), STRENGTHS),
    "oscar": ("oscar", lambda z, v: oscarmax(z, v), (-1.0, NAN, INF), STRENGTHS),
    "prox_tv": ("tv", lambda z, v: prox_tv(z, v), (-0.5, NAN, INF), STRENGTHS),
    "prox_oscar": ("oscar", lambda z, v: prox_oscar(z, v), (-0.5, NAN, INF), STRENGTHS),
    "fusedmax's alpha": ("alpha", lambda z, v: fusedmax(z, 0.1, v), (0.5, 2.5, NAN), ALPHAS),
    "oscarmax's alpha": ("alpha", lambda z, v: oscarmax(z, 0.1, v), (0.5, 2.5, NAN), ALPHAS),
    "p": ("p", lambda z, v: sq_pnorm_max(z, v), (1.0, 0.5, 2.001, 3.0, NAN, INF), PS),
    "gamma": ("gamma", lambda z, v: sq_pnorm_max(z, 1.5, v), (0.0, -1.0, NAN, INF), GAMMAS),
}
every_parameter = pytest.mark.parametrize(
    ("name", "function", "bad", "allowed"), WRONG_NUMBERS.values(), ids=WRONG_NUMBERS
)


def sentence_of(function, *arguments):
    """What a ValueError says: one sentence."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 what it says is for the caller
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert ". " not in message
    return message


@every_parameter
def test_a_number_out_of_range_is_refused_with_what_is_allowed(name, function, bad, allowed):
    for value in bad:
        message = sentence_of(function, torch.zeros(2, 3), value)
        assert re.match(rf"{name} must be .*{allowed}.*not {re.escape(str(value))}$", message)


@every_parameter
def test_a_tensor_with_one_number_out_of_range_is_refused(name, function, bad, allowed):
    for value in bad:
        values = torch.tensor([[1.25], [value], [1.25]], dtype=torch.float64)
        message = sentence_of(function, torch.zeros(3, 4), values)
        assert re.match(rf"{name} must be .*{allowed}.*not {re.escape(str(value))}$", message)


@every_parameter
@pytest.mark.parametrize("value", ["high", None, [1.5], 1.5 + 0j])
def test_what_is_no_number_is_refused(name, function, bad, allowed, value):
    message = sentence_of(function, torch.zeros(2, 3), value)
    assert re.match(rf"{name} must be a number.*not {re.escape(repr(value))}$", message)


@every_parameter
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_a_tensor_of_whole_numbers_is_refused(name, function, bad, allowed, dtype):
    message = sentence_of(function, torch.zeros(2, 3), torch.ones((), dtype=dtype))
    assert message == f"{name} must be a floating-point tensor, not {dtype}"


@every_parameter
@pytest.mark.parametrize("shape", [(3,), (4,), (3, 1), (2, 4), (2, 2, 1), (1, 1, 2, 1)])
def test_a_tensor_that_does_not_broadcast_is_refused(name, function, bad, allowed, shape):
    message = sentence_of(function, torch.zeros(2, 4), torch.full(shape, 1.5))
    pattern = rf"{name} of shape {re.escape(str(shape))} does not broadcast to \(2, 1\), .*dim -1$"
    assert re.match(pattern, message)


FUNCTIONS = (fusedmax, oscarmax, sq_pnorm_max, prox_tv, prox_oscar)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dim", [-4, 3, 10])
def test_a_dimension_that_the_scores_lack_is_refused(function, dim):
    message = sentence_of(lambda: function(torch.zeros(2, 3, 4), dim=dim))
    assert re.match(rf"dim must be from -3 to 2 .*\(2, 3, 4\), not {dim}$", message)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_scores_that_are_not_floating_point_are_refused(function, dtype):
    message = sentence_of(function, torch.zeros(2, 3, dtype=dtype))
    assert message == f"scores must be a floating-point tensor, not {dtype}"


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("scores", [[1.0, 2.0], None, torch.tensor(1.0)])
def test_what_is_no_row_of_scores_is_refused(function, scores):
    assert sentence_of(function, scores).startswith("scores must ")


@pytest.mark.parametrize("check", [check_strength, check_p, check_gamma])
def test_a_check_returns_a_float_and_names_what_it_is_told_to(check):
    assert check("1.5") == check(1.5) == 1.5
    assert type(check("1.5")) is float
    assert sentence_of(check, "-2", "--the-option").startswith("--the-option must be a number")
