"""The C kernels match torch's operations in float64."""

import pytest
import torch

from fairseq_entmax.kernels import torch_losses
from fairseq_entmax.kernels.native import attention, losses, rows
from fairseq_entmax.kernels.structure import PLAIN, STRUCTURES
from tests.kernels import contract
from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler


@pytest.mark.parametrize("keys", contract.LENGTHS)
def test_rows_match_float64(keys):
    contract.check_rows(rows, contract.batch(keys))


@pytest.mark.parametrize("number", [0.5, 1.0, 0.33])
def test_rows_with_one_epsilon_match_float64(number):
    for keys in contract.FEW_LENGTHS:
        contract.check_rows(rows, contract.batch(keys, epsilons=(number,)), number)


@pytest.mark.parametrize("bad", [contract.NAN, contract.INF, -contract.INF])
def test_a_gradient_that_is_not_finite_affects_only_its_row(bad):
    for keys in contract.FEW_LENGTHS:
        made = contract.batch(keys, broken=False)
        made.grad[3, keys // 2] = bad
        probs = rows.probabilities(made.scores, PLAIN, made.epsilon)
        given = (probs, PLAIN, made.epsilon, 0.0, None, made.grad, (True, True, False))
        for_scores, for_alpha, _ = rows.gradients(*given)
        assert not for_scores[3].isfinite().any()
        assert for_alpha[3].isnan() or keys == 1
        for_scores[3] = for_alpha[3] = 0
        assert for_scores.isfinite().all()
        assert for_alpha.isfinite().all()


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("keys", [1, 2, 5, 17, 40, 130])
def test_structured_rows_match_float64(structure, keys):
    contract.check_structured(rows, structure, keys)


@pytest.mark.parametrize("case", contract.CASES, ids=str)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, torch.tensor([0.4]), None], ids=str)
def test_attention_matches_float64(case, epsilon):
    heads = case.sizes[1]
    given = torch.linspace(0.05, 0.95, heads) if epsilon is None else epsilon
    contract.check_attention(attention.attention, case, given)


def test_deterministic_algorithms_do_not_fill_the_room_for_the_support(request):
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    torch.use_deterministic_algorithms(True)  # torch.empty then fills what it returns
    made, settings = contract.tensors_of(contract.CASES[5])
    _, (starts, support) = attention._forward(attention.Inputs(*made[:3], 1.0, settings), True)
    assert (support[:, starts[-1] :] != torch.iinfo(torch.int32).max).any()


def test_the_default_device_is_not_used():
    made, settings = contract.tensors_of(contract.CASES[7])
    made[0].requires_grad_()
    with torch.device("meta"):
        attention.attention(*made[:3], 0.5, **settings._asdict()).backward(made[3])
    assert made[0].grad.any()


def test_second_derivatives_match_torchs_operations():
    made, settings = contract.tensors_of(contract.CASES[8])
    epsilon = torch.tensor([0.2, 0.6])
    found = []
    for to in (torch.float32, torch.float64):
        leaves = [one.to(to).requires_grad_() for one in (*made[:3], epsilon)]
        if to == torch.float32:
            output = attention.attention(*leaves, **settings._asdict())
        else:
            output = contract.in_float64(leaves[:3], leaves[3], settings)
        first = torch.autograd.grad(output.square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(one.square().sum() for one in first), leaves))
    for ours, truth in zip(*found, strict=True):
        error = (ours.double() - truth).abs().max()
        assert error <= 1e-3 * truth.abs().max()


@pytest.mark.parametrize("backend", [losses, torch_losses], ids=["native", "torch"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("keys", [1, 2, 17, 100, 3000])
def test_losses_match_float64(backend, smoothing, keys):
    for epsilon in (1e-4, 0.2, 0.5, 0.9, 1.0):
        made = contract.batch(keys, epsilons=(epsilon,))
        finite = made.scores.abs() > 1e5  # smoothing would multiply huge scores
        scores = made.scores.masked_fill(finite & made.scores.isfinite(), -1e4)
        number = len(scores)
        target = torch.randint(keys, (number,), generator=torch.Generator().manual_seed(keys))
        parts, saved = backend.losses(scores, target, epsilon, smoothing)
        wide = scores.double()
        truth, kept = torch_losses.losses(wide, target, epsilon, smoothing)
        given = {"scores": scores, "target": target[:, None].double()}
        assert_rows = contract.assert_rows
        assert_rows(parts.loss[:, None], truth.loss[:, None], 1e-5, given, 1e-5)
        assert_rows(parts.target_prob[:, None], truth.target_prob[:, None], 2e-6, given)
        grad = torch.randn(number, generator=torch.Generator().manual_seed(1))
        # As a hook on saved tensors may return them, in another memory layout
        saved = [one.movedim(0, -1).contiguous().movedim(-1, 0) for one in saved]
        found = backend.gradients(scores, target, epsilon, smoothing, tuple(saved), grad)
        expected = torch_losses.gradients(wide, target, epsilon, smoothing, kept, grad.double())
        assert_rows(found, expected, 5e-6, given, 1e-5)
