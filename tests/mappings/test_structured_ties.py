"""Mappings with structure where strengths are 0, masks are finite, or what is done is recorded."""

import pytest
import torch

from fairseq_entmax.mappings import (
    fusedmax,
    oscarmax,
    prox_oscar,
    prox_tv,
    sparsemax,
    sq_pnorm_max,
)

STEP = 1e-6


def one_sided(function, scores, grad):
    """The derivative for a strength that is 0 and begins to grow, in float64."""
    scores, grad = scores.double(), grad.double()
    return ((function(scores, STEP) - function(scores, 0.0)) * grad).sum() / STEP


@pytest.mark.parametrize("grad", [[1, -1, 0.3, 2], [-1, 1, 0.3, 2]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mapping", [fusedmax, oscarmax])
def test_a_strength_of_0_grows_as_one_that_is_nearly_so_where_scores_are_equal(
    mapping, dtype, grad
):
    def function(scores, strength):
        return mapping(scores, strength, 1.5)

    scores = torch.tensor([[1, 1, 0.7, 0.7]], dtype=dtype)
    grad = torch.tensor([grad], dtype=dtype)
    strength = torch.zeros((1, 1), dtype=dtype, requires_grad=True)
    function(scores, strength).backward(grad)
    expected = one_sided(function, scores, grad).to(dtype)
    torch.testing.assert_close(strength.grad.sum(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mapping", [prox_tv, prox_oscar])
def test_so_does_that_of_a_proximal_operator(mapping):
    scores = torch.tensor([[1, 1, 0.7, -0.3]], dtype=torch.float64)
    grad = torch.tensor([[1, -1, 0.3, 2]], dtype=torch.float64)
    strength = torch.zeros((1, 1), dtype=torch.float64, requires_grad=True)
    mapping(scores, strength).backward(grad)
    torch.testing.assert_close(
        strength.grad.sum(), one_sided(mapping, scores, grad), rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_mask_of_the_least_number_leaves_what_it_does_not_mask(dtype):
    least = torch.finfo(dtype).min
    scores = torch.tensor([[1.0, 0.5, 0.0, least, least]], dtype=dtype)
    probs = fusedmax(scores, 0.05)
    torch.testing.assert_close(probs[:, :3], probs.new_tensor([[0.725, 0.275, 0.0]]))
    assert (probs[:, 3:] == 0).all()
    noise = torch.randn(3, 64, dtype=dtype, generator=torch.Generator().manual_seed(0))
    far = noise * (-least / 1000)
    torch.testing.assert_close(fusedmax(far), sparsemax(far))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    "function",
    [
        lambda scores, strength: fusedmax(scores, strength, 1.5),
        lambda scores, strength: oscarmax(scores, strength),
        lambda scores, strength: sq_pnorm_max(scores, 1.4, strength),
        prox_tv,
        prox_oscar,
    ],
)
def test_what_is_recorded_holds_for_other_scores_and_strengths(function):
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(4, 9, generator=generator) for _ in range(2))
    strengths = [torch.full((4, 1), number) for number in (0.05, 0.7)]
    recorded = torch.jit.trace(function, (first, strengths[0]))
    for scores in (first, 3 * second):
        for strength in strengths:
            torch.testing.assert_close(
                recorded(scores, strength), function(scores, strength), rtol=1e-5, atol=1e-6
            )
