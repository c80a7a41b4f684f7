"""max_omega against mappings that it should be, its optimality conditions, and its gradients."""

import pytest
import torch

from fairseq_entmax.kernels.torch_tv import prox_tv
from fairseq_entmax.mappings import fusedmax, max_omega, sparsemax
from tests.mappings.reference import random_rows
from tests.mappings.structured_cases import gapped_rows, gradients_of


def prox_of_fusedmax(tv):
    return lambda points: prox_tv(points / 2, tv / 2, torch.zeros_like(points, dtype=torch.bool))[0]


@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-5)])
def test_it_is_sparsemax_and_fusedmax_with_their_gradients(gamma, dtype, tolerance):
    rows, grad = random_rows(6, 12, 1.0, dtype=dtype), random_rows(6, 12, 1.0, 1, dtype=dtype)
    tv = torch.tensor(0.2, dtype=dtype)
    pairs = [
        (lambda z, _: max_omega(z, lambda x: x / 2, gamma), lambda z, _: sparsemax(z / gamma)),
        (
            lambda z, tv: max_omega(z, prox_of_fusedmax(tv), gamma),
            lambda z, tv: fusedmax(z / gamma, tv),
        ),
    ]
    for ours, reference in pairs:
        for scale in (1.0, 1e-6):  # the size of a gradient is no matter
            results = [
                (one(rows, tv), *gradients_of(one, grad * scale, rows, tv))
                for one in (ours, reference)
            ]
            for found, expected in zip(*results, strict=True):
                size = 1.0 if expected is None or expected.dim() == 2 else 30.0
                assert (found is None) == (expected is None)
                if found is not None:
                    error = (found - expected).abs().max()
                    assert error <= tolerance * size * max(scale, expected.abs().max())


def test_any_strongly_convex_regulariser_meets_its_optimality_conditions_and_gradcheck():
    generator = torch.Generator().manual_seed(2)
    root = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    curvature = torch.eye(7, dtype=torch.float64) + root @ root.T
    inverse = torch.linalg.inv(curvature + torch.eye(7))

    def probs(scores):
        return max_omega(scores, lambda points: points @ inverse, 0.3)

    scores = gapped_rows(7)
    found = probs(scores)
    assert (found[scores == -torch.inf] == 0).all()
    torch.testing.assert_close(found.sum(-1), torch.tensor([1.0] * 5 + [0]).double())
    for row, own in zip(scores[:5], found, strict=False):
        slope = row - 0.3 * curvature @ own
        support = own > 1e-9
        assert (slope <= slope[support].min() + 1e-9).all()
        assert slope[support].max() - slope[support].min() <= 1e-9
    assert torch.autograd.gradcheck(probs, (random_rows(4, 7, 1.0).requires_grad_(),))
    turned = max_omega(scores.T, lambda points: points @ inverse, 0.3, dim=0)
    torch.testing.assert_close(turned.T, found)


def test_what_it_cannot_do_is_said():
    scores = random_rows(2, 5, 1.0).requires_grad_()
    with pytest.raises(ValueError, match="gamma must be a number above 0"):
        max_omega(scores, lambda points: points / 2, 0.0)
    with pytest.raises(RuntimeError, match="does not converge in iterations=50: give more, or the"):
        max_omega(scores, lambda points: -3 * points, iterations=50)
    loss = max_omega(scores, lambda points: points / 2).square().sum()
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(loss, scores, create_graph=True)
