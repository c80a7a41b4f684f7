"""The penalty on open heads: its formulas, its multipliers by hand, and its decisions."""

import math

import pytest
import torch

from fairseq_entmax.attention import HardConcreteGate, PruningState
from fairseq_entmax.criterions.penalty import RHO, HeadPenalty, count_heads

SHIFT = 0.33 * math.log(0.1 / 1.1)
# Attention, layer, log a of its heads
LOG_A = {
    ("encoder-self", 0): [-4.0, 3.0, 0.2, 1.1],
    ("encoder-self", 2): [0.5, -0.5, 2.0],
    ("cross", 1): [1.5, -1.0],
}
TIES = {("encoder-self", 0): [2.5] * 4, ("encoder-self", 2): [2.5] * 3, ("cross", 1): [2.5] * 2}
NUM_HEADS = {"encoder-self": 7, "cross": 2, "all": 9}
# log a of two protected heads at the start of their layer; an ordinary gate would close the first
PROTECTED = {("cross", 1): [-8.0, 0.3]}


def make_gates(log_a=LOG_A, protected=None):
    """Gates in float64, as a dict from attention to layer to gate."""
    gates = {}
    for (attention, layer), values in log_a.items():
        added = (protected or {}).get((attention, layer), [])
        gate = HardConcreteGate(len(added + values), protected=range(len(added))).double()
        gates.setdefault(attention, {})[layer] = gate
        set_log_a(gate, added + values)
    return gates


def set_log_a(gate, values):
    with torch.no_grad():
        gate.weight.copy_(torch.tensor(values, dtype=torch.float64) / gate.lr_factor)


def in_order(gates, group="all"):
    names = gates if group == "all" else [group]
    return [gate for name in names for gate in gates[name].values()]


def all_log_a(gates, group="all"):
    """log a, whose gradient the stored weights get."""
    both = [(gate.weight, gate.lr_factor - 1) for gate in in_order(gates, group)]
    return torch.cat([weight + more * weight.detach() for weight, more in both])


def expected_heads(gates, group="all"):
    """C by its formula."""
    return (1 / (1 + torch.exp(SHIFT - all_log_a(gates, group)))).sum()


def at_evaluation(gates, group="all"):
    return torch.cat([gate.at_evaluation() for gate in in_order(gates, group)]).tolist()


def value_and_gradients(value, gates):
    weights = [gate.weight for gate in in_order(gates)]
    gradients = torch.autograd.grad(value, weights, allow_unused=True)
    return [value.detach(), *(torch.zeros(1) if one is None else one for one in gradients)]


def assert_same(value, expected, gates):
    """Assert that two values and their gradients at every gate are the same."""
    found, wanted = value_and_gradients(value, gates), value_and_gradients(expected, gates)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0, check_dtype=False)


@pytest.mark.parametrize(
    ("warmup", "updates", "share"),
    [(0, 0, 1.0), (0, 9, 1.0), (10, 0, 0.0), (10, 3, 0.3), (10, 10, 1.0), (10, 25, 1.0)],
)
def test_the_penalty_is_lambda_times_the_expected_heads_after_the_warm_up(warmup, updates, share):
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(weight=0.7, warmup_updates=warmup)
    penalty.advance(gates, state, updates)
    assert_same(penalty(gates, state), 0.7 * share * expected_heads(gates), gates)
    assert penalty.weights(state) == {"all": pytest.approx(0.7 * share)}


@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("targets", [{"all": 4}, {"encoder-self": 2, "cross": 1}, {"cross": 1}])
def test_multipliers_follow_the_violation_and_the_target_moves_in_equal_steps(targets, is_stopped):
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(targets=targets, warmup_updates=4, multiplier_lr=0.05)
    penalty.advance(gates, state, 0)
    start = {name: expected_heads(gates, name).item() for name in targets}
    multipliers = dict.fromkeys(targets, 0.0)

    def violation(name, updates):
        target = start[name] + (targets[name] - start[name]) * min(1, updates / 4)
        return (expected_heads(gates, name) - target) / NUM_HEADS[name]

    for updates in range(1, 8):
        if is_stopped and updates == 3:  # the checkpoint's update comes again
            saved, state = state, PruningState()
            state.load_state_dict(saved.state_dict())
            penalty.advance(gates, state, updates - 1)
        # what the optimiser does between updates
        set_log_a(gates["encoder-self"][0], [-4.0 + updates, 3.0 - updates, 0.2, 1.1])
        penalty.advance(gates, state, updates)
        for name in targets:
            multipliers[name] += 0.05 * violation(name, updates).item()
        # another batch of the same update changes nothing
        set_log_a(gates["cross"][1], [1.5, -1.0 - updates])
        penalty.advance(gates, state, updates)
        assert penalty.weights(state) == pytest.approx(multipliers, abs=1e-12)
        expected = 0.0
        for name in targets:
            e = violation(name, updates)
            expected = expected + NUM_HEADS[name] * (multipliers[name] * e + RHO / 2 * e * e)
        assert_same(penalty(gates, state), expected, gates)
    assert state.updates == 7


@pytest.mark.parametrize("log_a", [LOG_A, TIES])
@pytest.mark.parametrize(
    "targets",
    [
        *({"all": number} for number in (0, 1, 4, 9)),
        *({"encoder-self": a, "cross": b} for a, b in ((0, 2), (3, 1), (7, 0))),
    ],
)
def test_a_decision_keeps_the_largest_log_a_and_the_first_of_ties(targets, log_a):
    gates, state = make_gates(log_a), PruningState()
    penalty = HeadPenalty(targets=targets, decide_at=3)
    for updates in range(3):
        penalty.advance(gates, state, updates)
    assert not any(gate.is_decided for gate in in_order(gates))
    penalty.advance(gates, state, 3)
    assert all(gate.is_decided for gate in in_order(gates))
    for name, number in targets.items():
        values = all_log_a(gates, name).tolist()
        remaining = sorted(range(len(values)), key=lambda head: -values[head])[:number]
        assert at_evaluation(gates, name) == [float(n in remaining) for n in range(len(values))]
    number = sum(targets.values())
    counts = [count_heads(what, *in_order(gates)) for what in ("expected", "open", "undecided")]
    assert counts == [number, number, 0]


def test_gates_without_a_budget_are_rounded_to_the_nearer_value():
    nearer = [float(value >= 0.5) for value in at_evaluation(make_gates())]
    assert 0 < sum(nearer) < 9
    for targets, rest in ((None, slice(None)), ({"cross": 0}, slice(7))):
        gates = make_gates()
        HeadPenalty(targets=targets).decide(gates)
        assert at_evaluation(gates)[rest] == nearer[rest]
    assert at_evaluation(gates)[7:] == [0.0, 0.0]


def test_a_training_resumed_after_the_decision_decides_before_its_first_update():
    gates, state = make_gates(), PruningState()
    HeadPenalty(targets={"all": 4}, decide_at=90).advance(gates, state, 10)
    assert not any(gate.is_decided for gate in in_order(gates))
    # stopped, and resumed with an earlier update for the decision
    HeadPenalty(targets={"all": 4}, decide_at=10).advance(gates, state, 10)
    assert count_heads("open", *in_order(gates)) == 4


def test_a_target_that_the_heads_of_a_decided_training_do_not_have_is_refused():
    gates, state = make_gates(), PruningState()
    HeadPenalty(targets={"all": 4}, decide_at=1).advance(gates, state, 1)
    resumed = PruningState()
    resumed.load_state_dict(state.state_dict())
    with pytest.raises(
        ValueError, match=r"for 2 heads in all, but .* decided on 4: give 4 to .*-model"
    ):
        HeadPenalty(targets={"all": 2}, decide_at=9).advance(gates, resumed, 1)


def test_a_decision_holds_without_gradient_until_a_new_training_begins():
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(targets={"all": 4}, decide_at=2)
    for updates in (0, 1, 2):
        penalty.advance(gates, state, updates)
    decided, rest = at_evaluation(gates), state.multipliers.clone()
    for gate in in_order(gates):
        set_log_a(gate, (-gate.log_a.detach()).tolist())
    state.load_state_dict(state.state_dict())  # as in a resumed training
    penalty.advance(gates, state, 3)
    assert at_evaluation(gates) == decided
    assert torch.equal(state.multipliers, rest)
    value, *gradients = value_and_gradients(penalty(gates, state), gates)
    assert value == 0
    assert not any(gradient.any() for gradient in gradients)
    # the number of updates goes back
    penalty.advance(gates, state, 0)
    assert not any(gate.is_decided for gate in in_order(gates))
    assert state.updates == 0
    assert not state.multipliers.any()
    expected = expected_heads(gates).item()
    assert state.start.tolist() == [pytest.approx(expected, abs=1e-6), -1, -1]


def test_validation_counts_expected_heads_without_warm_up_or_gradient():
    gates = make_gates()
    value = HeadPenalty(weight=0.7, warmup_updates=1000).at_validation(gates)
    assert value.item() == pytest.approx(0.7 * expected_heads(gates).item(), abs=1e-12)
    assert not value.requires_grad


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (HeadPenalty(weight=0.1), HeadPenalty(targets={"all": 3}, warmup_updates=20)),
        (
            HeadPenalty(targets={"all": 3}, warmup_updates=20),
            HeadPenalty(targets={"encoder-self": 2, "cross": 1}, warmup_updates=20),
        ),
    ],
)
def test_a_training_resumed_with_another_budget_starts_from_its_current_heads(before, after):
    gates, state, loaded = make_gates(), PruningState(), PruningState()
    before.advance(gates, state, 0)
    loaded.load_state_dict(state.state_dict())
    after.advance(gates, loaded, 0)
    for group in after.targets:
        found = loaded.start[2 if group == "cross" else 0].item()
        assert found == pytest.approx(expected_heads(gates, group).item(), abs=1e-6)


# Protected heads: the penalty is that of a model without them, and they count as heads that stay


@pytest.mark.parametrize("targets", [None, {"all": 4}, {"encoder-self": 2, "cross": 1}])
def test_penalty_gradients_and_multipliers_come_from_unprotected_heads(targets):
    more = targets and {name: n + 2 * (name in ("all", "cross")) for name, n in targets.items()}
    found = []
    for gates, wanted in ((make_gates(), targets), (make_gates(protected=PROTECTED), more)):
        penalty, state = HeadPenalty(0.7, wanted, 4, multiplier_lr=0.1), PruningState()
        for updates in range(6):
            penalty.advance(gates, state, updates)
        value, *gradients = value_and_gradients(penalty(gates, state), gates)
        validation = penalty.at_validation(gates)
        found.append((value, torch.cat(gradients), state.multipliers, validation))
    free, protected = found
    assert protected[1][7:9].tolist() == [0.0, 0.0]
    others = (protected[0], torch.cat([protected[1][:7], protected[1][9:]]), *protected[2:])
    torch.testing.assert_close(others, free, atol=1e-12, rtol=0)


@pytest.mark.parametrize("number", [0, 3, 9])
def test_protected_heads_are_among_those_that_stay(number):
    gates, alone = make_gates(protected=PROTECTED), make_gates()
    penalty = HeadPenalty(targets={"all": 2 + number}, decide_at=0)
    penalty.check(gates)
    penalty.advance(gates, PruningState(), 0)
    HeadPenalty(targets={"all": number}).decide(alone)
    values = at_evaluation(gates)
    assert values[7:9] == [1.0, 1.0]
    assert values[:7] + values[9:] == at_evaluation(alone)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"decoder-self": 1}, r"names decoder-self, which has no gates .*--head-gates, or leave"),
        ({"all": 12}, r"--target-heads asks for 12 heads in all, but only 11 .*give 11 or less"),
        ({"cross": 5}, r"asks for 5 heads in cross, but only 4 have gates: give 4 or less"),
        ({"cross": 1}, r"asks for 1 heads in cross, but 2 copy heads always stay: give 2 or more"),
        ({"all": 0}, r"asks for 0 heads in all, but 2 copy heads always stay: give 2 or more"),
    ],
)
def test_an_impossible_budget_is_refused_with_the_remedy(targets, message):
    with pytest.raises(ValueError, match=message):
        HeadPenalty(targets=targets).check(make_gates(protected=PROTECTED))
