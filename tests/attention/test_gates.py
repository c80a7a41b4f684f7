"""Hard-concrete gates compared with their closed forms, for single draws and on average."""

import itertools
import math

import pytest
import torch

from fairseq_entmax.attention import HardConcreteGate
from fairseq_entmax.attention import gates as gates_module
from fairseq_entmax.mappings.factor import LEAST_LR_FACTOR, MOST_LR_FACTOR

DRAWS = 100_000
STRETCHES = [(-0.1, 1.1), (-0.4, 1.05)]


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def make(log_a, **options):
    """A gate in float64 with the given ``log a``."""
    gate = HardConcreteGate(len(log_a), **options).double()
    with torch.no_grad():
        gate.weight.copy_(torch.tensor(log_a, dtype=torch.float64) / gate.lr_factor)
    return gate


def clipped(s, stretch=(-0.1, 1.1)):
    """The gate value for ``s``, by the formula."""
    gamma, zeta = stretch
    return min(1.0, max(0.0, s * (zeta - gamma) + gamma))


def everything(gate):
    return [gate(), gate.probability_open(), gate.at_evaluation()]


@pytest.mark.parametrize("log_a", [-2.5, 0.0, 4.0])
@pytest.mark.parametrize("temperature", [0.33, 0.8])
@pytest.mark.parametrize("stretch", STRETCHES)
def test_draws_follow_the_probabilities_and_mean_of_their_distribution(log_a, temperature, stretch):
    gamma, zeta = stretch
    torch.manual_seed(0)
    # One pass through many gates draws each of them once
    gate = HardConcreteGate(DRAWS, temperature, stretch, init=log_a)
    drawn = gate().detach().double()
    zero = sigmoid(temperature * math.log(-gamma / zeta) - log_a)
    one = sigmoid(log_a - temperature * math.log((1 - gamma) / (zeta - 1)))
    for expected, found in ((zero, drawn == 0), (one, drawn == 1)):
        # 5 standard errors of a share, plus 3 draws for shares close to zero
        tolerance = 5 * math.sqrt(expected * (1 - expected) / DRAWS) + 3 / DRAWS
        assert found.double().mean().item() == pytest.approx(expected, abs=tolerance)
    assert gate.probability_open()[0].item() == pytest.approx(1 - zero, abs=1e-6)
    # The mean of a variable in [0, 1] is the integral of P(g > t), which is smooth in t
    t = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    above = torch.sigmoid(log_a - temperature * torch.logit((t - gamma) / (zeta - gamma)))
    expected = torch.trapezoid(above, t).item()
    tolerance = 5 * drawn.std().item() / math.sqrt(DRAWS) + 1e-6
    assert drawn.mean().item() == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("temperature", [0.33, 0.8])
@pytest.mark.parametrize("stretch", STRETCHES)
def test_a_training_pass_matches_the_formula_of_its_draw_and_its_pathwise_gradient(
    temperature, stretch
):
    log_a, uniform = [-3.0, -0.5, 0.2, 2.0], [0.5, 0.6, 0.45, 0.9]
    gate = make(log_a, temperature=temperature, stretch=stretch)
    gate.use_draw(torch.tensor(uniform, dtype=torch.float64))
    s = [
        sigmoid((math.log(u) - math.log(1 - u) + a) / temperature)
        for a, u in zip(log_a, uniform, strict=True)
    ]
    expected = torch.tensor([clipped(one, stretch) for one in s], dtype=torch.float64)
    values = gate()
    torch.testing.assert_close(values, expected, atol=1e-12, rtol=0)
    # The cases cover both limits and a value between them
    assert 0 < expected[1] < 1
    assert (expected[0], expected[3]) == (0, 1)
    values.sum().backward()
    gamma, zeta = stretch
    slopes = [(zeta - gamma) * one * (1 - one) / temperature for one in s]
    inside = (expected > 0) & (expected < 1)
    slopes = torch.where(inside, torch.tensor(slopes, dtype=torch.float64), 0.0)
    torch.testing.assert_close(gate.weight.grad, slopes, atol=1e-12, rtol=0)


def test_evaluation_follows_the_formula_and_is_deterministic():
    log_a = [-5.0, -2.3, -0.4, 0.0, 0.9, 2.3, 2.4, 6.0]
    gate = make(log_a).eval()
    gate.use_draw(torch.full((8,), 0.001))  # used in training only
    expected = torch.tensor([clipped(sigmoid(a)) for a in log_a], dtype=torch.float64)
    before = torch.random.get_rng_state()
    first, second = gate(), gate()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.testing.assert_close(first, expected, atol=1e-12, rtol=0)
    assert torch.equal(first, second)
    assert (first == 1).tolist() == [False] * 6 + [True] * 2
    assert torch.equal(gate.train().at_evaluation(), first)
    assert not gate.at_evaluation().requires_grad
    new = HardConcreteGate(8)
    assert torch.equal(new.eval()(), torch.ones(8))
    assert not new.is_decided


@pytest.mark.parametrize("training", [True, False])
def test_a_decided_gate_is_exact_and_has_zero_gradient_until_the_decision_is_withdrawn(training):
    gate = make([3.0, -3.0, 0.1]).train(training)
    before = gate.at_evaluation()
    gate.decide(torch.tensor([False, True, True]))
    assert gate.is_decided
    assert [found.tolist() for found in everything(gate)] == [[0.0, 1.0, 1.0]] * 3
    (gate().sum() + gate.probability_open().sum()).backward()
    # Zeros and not None, because distributed training waits for every gradient
    assert gate.weight.grad.tolist() == [0.0, 0.0, 0.0]
    gate.decide(None)
    assert not gate.is_decided
    assert torch.equal(gate.at_evaluation(), before)
    gate.probability_open().sum().backward()
    assert (gate.weight.grad > 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gates_are_computed_in_float32(dtype):
    half, full = HardConcreteGate(5), HardConcreteGate(5)
    with torch.no_grad():
        half.weight.copy_(torch.tensor([-0.31, -0.1, 0.017, 0.12, 0.4]))
        half.to(dtype)
        full.weight.copy_(half.weight)
    for gate in (half, full):
        gate.use_draw(torch.tensor([0.9, 0.5, 0.4, 1e-4, 0.3]))
    assert {one.dtype for one in everything(half)} == {torch.float32}
    torch.testing.assert_close(everything(half), everything(full), atol=0, rtol=0)
    half.probability_open().sum().backward()
    assert half.weight.grad.dtype == dtype
    assert (half.weight.grad > 0).all()


@pytest.mark.parametrize("factor", [0.001, 1, 10, 30])
def test_a_checkpoint_keeps_gates_and_decisions_under_another_lr_factor(factor):
    saved, loaded = HardConcreteGate(3, lr_factor=10), HardConcreteGate(3, lr_factor=factor)
    with torch.no_grad():
        saved.weight.copy_(torch.tensor([-0.2, 0.05, 0.31]))
    saved.decision[2] = 1
    loaded.load_state_dict(saved.state_dict())
    torch.testing.assert_close(loaded.log_a, torch.tensor([-2.0, 0.5, 3.1]))
    torch.testing.assert_close(loaded.at_evaluation(), saved.at_evaluation())
    assert torch.equal(loaded.decision, saved.decision)
    assert not loaded.filled
    state = loaded.state_dict()
    del state["lr_factor_ratio"]  # a checkpoint without a factor has that of the gates
    again = HardConcreteGate(3, lr_factor=factor)
    again.load_state_dict(state)
    assert torch.equal(again.log_a, loaded.log_a)
    with torch.no_grad():
        loaded.weight.add_(0.01)
    moved = loaded.log_a - again.log_a
    torch.testing.assert_close(moved, torch.full((3,), 0.01 * factor), rtol=1e-2, atol=1e-5)


def test_draws_over_many_batches_are_uniform_and_independent_across_heads():
    gates = [HardConcreteGate(2, temperature=0.99, init=0.0), HardConcreteGate(1, init=0.0)]
    rows, state = [], torch.random.get_rng_state()
    for update in range(2000):
        gates_module.draw(gates, 1, update, 0)
        rows.append(torch.cat([gate().detach() for gate in gates]))
    assert torch.equal(torch.random.get_rng_state(), state)
    # log a = 0 is symmetric, so in every head half of the gates are above 0.5
    above = (torch.stack(rows).double() > 0.5).double()
    error = 5 / math.sqrt(len(rows))
    assert (above.mean(0) - 0.5).abs().max() < error / 2
    correlation = torch.corrcoef(above.T)
    assert correlation[~torch.eye(3, dtype=torch.bool)].abs().max() < error


@pytest.mark.parametrize("value", ["-0.2,1.2", [-0.2, "1.2"], "0.2", 0.2])
def test_the_stretch_is_a_pair_or_one_number_for_both_sides(value):
    assert gates_module.check_stretch(value) == pytest.approx((-0.2, 1.2))


LEAST, MOST = gates_module.LEAST_STRETCH, gates_module.MOST_STRETCH
BOUNDS = {
    "temperature": (gates_module.LOWEST_TEMPERATURE, 1 - 1e-9),
    "stretch": tuple((-low, 1 + high) for low in (LEAST, MOST) for high in (LEAST, MOST)),
    "init": (-gates_module.MOST_INIT, 0.0, gates_module.MOST_INIT),
    "lr_factor": (LEAST_LR_FACTOR, MOST_LR_FACTOR),
}


def test_gates_and_gradients_are_finite_at_every_corner_of_the_allowed_options():
    uniform = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    # torch.rand can give 0, and the largest float32 below 1
    uniform[:2] = torch.tensor([0.0, 1.0 - 2.0**-24])
    for bounds in itertools.product(*BOUNDS.values()):
        options = dict(zip(BOUNDS, bounds, strict=True))
        gate = HardConcreteGate(1000, **options)
        torch.testing.assert_close(gate.log_a, torch.full((1000,), options["init"]))
        (gradient,) = torch.autograd.grad(gate.probability_open().sum(), gate.weight)
        assert bool(gradient.isfinite().all() and (gradient > 0).all()), options
        gate.use_draw(uniform)
        drawn = gate()
        (gradient,) = torch.autograd.grad(drawn.sum(), gate.weight)
        assert bool(drawn.isfinite().all() and gradient.isfinite().all()), options
        if options["init"] == 0:
            assert drawn[:2].tolist() == [0, 1]
            share = float((gradient > 0).float().mean())
            assert share > options["temperature"] / 2 or options["stretch"] != BOUNDS["stretch"][0]
        # Half precision keeps the initial value for every factor
        assert gate.half().log_a[0].item() == pytest.approx(options["init"], rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
@pytest.mark.parametrize("training", [True, False])
def test_a_protected_gate_stays_one_and_learns_nothing(training, dtype):
    gate = make([-4.0, -4.0, 0.1], protected=(1,)).to(dtype).train(training)
    gate.use_draw(torch.tensor([0.5, 1e-4, 0.5], dtype=torch.float64))
    for is_open in (None, torch.zeros(3, dtype=torch.bool)):
        gate.decide(is_open)
        assert [found[1].item() for found in everything(gate)] == [1.0, 1.0, 1.0]
    gate.decide(None)
    (gate().sum() + gate.probability_open().sum()).backward()
    assert gate.weight.grad[1] == 0
    assert gate.weight.grad[2] != 0
    assert not gate.is_decided
    assert HardConcreteGate(2, protected=(0, 1)).is_decided


def test_protection_does_not_change_other_gates_or_checkpoints():
    free, protected = (HardConcreteGate(4, init=-0.5, protected=heads) for heads in ((), (0, 2)))
    values = []
    for gate in (free, protected):
        gates_module.draw([gate], 3, 1, 4)
        values.append([one[[1, 3]] for one in everything(gate)])
    torch.testing.assert_close(*values, atol=0, rtol=0)
    assert free.state_dict().keys() == protected.state_dict().keys()
    free.load_state_dict(protected.state_dict())
    assert (free.at_evaluation() < 1).all()
