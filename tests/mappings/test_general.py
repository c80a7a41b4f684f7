"""max_omega: its known special cases, its optimality conditions, and its gradients."""

import pytest
import torch

from fairseq_entmax.kernels.torch_tv import prox_tv
from fairseq_entmax.mappings import fusedmax, max_omega, sparsemax
from tests.mappings.reference import random_rows
from tests.mappings.structured_cases import gapped_rows, gradients_of

KNOWN = {
    "sparsemax": (lambda x, tv: x / 2 + 0 * tv, lambda z, tv: sparsemax(z) + 0 * tv),
    "fusedmax": (lambda x, tv: prox_tv(x / 2, tv / 2, x.isinf())[0], fusedmax),
}


@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("case", KNOWN)
def test_special_cases_match_sparsemax_and_fusedmax_with_their_gradients(gamma, case):
    prox, known = KNOWN[case]
    ours = lambda z, tv: max_omega(z, lambda x: prox(x, tv), gamma)  # noqa: E731
    rows, grad = random_rows(6, 12, 1.0), random_rows(6, 12, 1e-6, 1)
    tv = torch.tensor(0.2).double()
    torch.testing.assert_close(ours(rows, tv), known(rows / gamma, tv), atol=1e-10, rtol=0)
    assert ours(rows.float(), tv).dtype == torch.float32
    assert ours(rows[:, :0], tv).shape == (6, 0)
    expected = gradients_of(lambda z, tv: known(z / gamma, tv), grad, rows, tv)
    for one, other in zip(gradients_of(ours, grad, rows, tv), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-15, rtol=1e-9)


def test_a_quadratic_regulariser_meets_its_optimality_conditions_and_gradcheck():
    root, whole = random_rows(7, 3, 1.0, seed=2), torch.eye(7).double()
    inverse = torch.linalg.inv(2 * whole + root @ root.T)
    probs = lambda z, dim=-1: max_omega(z, lambda x: x @ inverse, 0.3, dim)  # noqa: E731
    scores, found = gapped_rows(7), probs(gapped_rows(7))
    assert (found[scores == -torch.inf] == 0).all()
    for row, own in zip(scores[:5], found, strict=False):
        slope, support = row - 0.3 * (whole + root @ root.T) @ own, own > 1e-9
        assert own.sum() == pytest.approx(1.0)
        assert slope.max() - slope[support].min() <= 1e-9
    rows = random_rows(4, 7, 1.0).requires_grad_()
    assert torch.autograd.gradcheck(probs, rows, check_undefined_grad=False)
    with pytest.raises(RuntimeError, match="only first derivatives"):
        torch.autograd.grad(probs(scores.requires_grad_())[0, 0], scores, create_graph=True)
