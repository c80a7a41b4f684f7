"""The penalty on open heads: its formulas, its multipliers by hand, and its decisions."""

import math

import pytest
import torch

from fairseq_entmax.criterions.penalty import RHO, HeadPenalty, count_heads
from fairseq_entmax.modules import HardConcreteGate, PruningState

SHIFT = 0.33 * math.log(0.1 / 1.1)
# Attention, layer, log a of its heads
LOG_A = {
    ("encoder-self", 0): [-4.0, 3.0, 0.2, 1.1],
    ("encoder-self", 2): [0.5, -0.5, 2.0],
    ("cross", 1): [1.5, -1.0],
}
NUM_HEADS = {"encoder-self": 7, "cross": 2, "all": 9}


def make_gates(log_a=LOG_A):
    """Gates in float64: attention to layer to gate."""
    gates = {}
    for (attention, layer), values in log_a.items():
        gate = HardConcreteGate(len(values)).double()
        gates.setdefault(attention, {})[layer] = gate
        set_log_a(gate, values)
    return gates


def set_log_a(gate, values):
    with torch.no_grad():
        gate.weight.copy_(torch.tensor(values, dtype=torch.float64) / gate.lr_factor)


def in_order(gates):
    return [gate for layers in gates.values() for gate in layers.values()]


def all_log_a(gates, group="all"):
    names = gates if group == "all" else [group]
    return [a for name in names for gate in gates[name].values() for a in gate.log_a.tolist()]


def expected_heads(gates, group="all"):
    """C by its formula, a head at a time."""
    return sum(1 / (1 + math.exp(SHIFT - a)) for a in all_log_a(gates, group))


def at_evaluation(gates):
    return torch.cat([gate.at_evaluation() for gate in in_order(gates)]).tolist()


@pytest.mark.parametrize(
    ("warmup", "updates", "share"),
    [(0, 0, 1.0), (0, 9, 1.0), (10, 0, 0.0), (10, 3, 0.3), (10, 10, 1.0), (10, 25, 1.0)],
)
def test_the_penalty_is_lambda_times_the_expected_heads_after_the_warm_up(warmup, updates, share):
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(weight=0.7, warmup_updates=warmup)
    penalty.advance(gates, state, updates)
    expected = 0.7 * share * expected_heads(gates)
    assert penalty(gates, state).item() == pytest.approx(expected, abs=1e-12)
    assert penalty.weights(state) == {"all": pytest.approx(0.7 * share)}


def test_the_penalty_pushes_every_gate_down_by_lambda_times_its_own_slope():
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(weight=0.7)
    penalty.advance(gates, state, 1)
    penalty(gates, state).backward()
    for gate in in_order(gates):
        p = gate.probability_open().detach()
        torch.testing.assert_close(
            gate.weight.grad, 0.7 * p * (1 - p) * gate.lr_factor, atol=1e-12, rtol=0
        )


@pytest.mark.parametrize("targets", [{"all": 4}, {"encoder-self": 2, "cross": 1}])
def test_multipliers_move_by_the_violation_and_the_target_by_equal_steps(targets):
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(targets=targets, warmup_updates=4, multiplier_lr=0.05)
    penalty.advance(gates, state, 0)
    start = {name: expected_heads(gates, name) for name in targets}
    multipliers = dict.fromkeys(targets, 0.0)
    for updates in range(1, 8):
        # what the optimiser does meanwhile
        set_log_a(gates["encoder-self"][0], [-4.0 + updates, 3.0 - updates, 0.2, 1.1])
        set_log_a(gates["cross"][1], [1.5, -1.0 - updates])
        penalty.advance(gates, state, updates)
        total = 0.0
        for name, number in targets.items():
            target = start[name] + (number - start[name]) * min(1, updates / 4)
            violation = (expected_heads(gates, name) - target) / NUM_HEADS[name]
            multipliers[name] += 0.05 * violation
            total += NUM_HEADS[name] * (
                multipliers[name] * violation + RHO / 2 * violation * violation
            )
        assert penalty.weights(state) == pytest.approx(multipliers, abs=1e-12)
        assert penalty(gates, state).item() == pytest.approx(total, abs=1e-12)
    assert state.updates == 7


def test_with_a_budget_each_gate_is_pushed_by_multiplier_and_violation():
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(targets={"all": 3}, multiplier_lr=0.1)
    for updates in range(4):
        penalty.advance(gates, state, updates)
    penalty(gates, state).backward()
    violation = (expected_heads(gates) - 3) / 9
    # without warm-up every update saw this violation; mu is also what a fixed lambda would be
    push = 3 * 0.1 * violation + RHO * violation
    for gate in in_order(gates):
        p = gate.probability_open().detach()
        torch.testing.assert_close(
            gate.weight.grad, push * p * (1 - p) * gate.lr_factor, atol=1e-12, rtol=0
        )


def test_a_budget_of_one_attention_leaves_the_gates_of_others_alone():
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(targets={"cross": 1})
    penalty.advance(gates, state, 1)
    penalty(gates, state).backward()
    assert gates["cross"][1].weight.grad.any()
    assert [gate.weight.grad for gate in gates["encoder-self"].values()] == [None, None]


def test_advancing_again_within_an_update_changes_nothing():
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(targets={"all": 3}, warmup_updates=5)
    for updates in (0, 1, 2):
        penalty.advance(gates, state, updates)
    once = state.multipliers.clone()
    assert once.any()
    set_log_a(gates["cross"][1], [9.0, 9.0])
    for _ in range(3):
        penalty.advance(gates, state, 2)
    assert torch.equal(state.multipliers, once)


@pytest.mark.parametrize("number", [0, 1, 4, 9])
def test_after_the_decision_a_budget_for_all_is_met_exactly(number):
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(targets={"all": number}, decide_at=3)
    for updates in range(3):
        penalty.advance(gates, state, updates)
    assert not any(gate.is_decided for gate in in_order(gates))
    penalty.advance(gates, state, 3)
    assert all(gate.is_decided for gate in in_order(gates))
    counts = count_heads(in_order(gates))
    assert (counts.expected, counts.open, counts.undecided) == (number, number, 0)
    # those of largest log a stay
    log_a = all_log_a(gates)
    kept = {a for a, gate in zip(log_a, at_evaluation(gates), strict=True) if gate == 1}
    assert kept == set(sorted(log_a, reverse=True)[:number])


@pytest.mark.parametrize(("encoder", "cross"), [(0, 2), (3, 1), (7, 0)])
def test_after_the_decision_the_budget_of_each_attention_is_met_exactly(encoder, cross):
    gates = make_gates()
    HeadPenalty(targets={"encoder-self": encoder, "cross": cross}).decide(gates)
    for attention, number in (("encoder-self", encoder), ("cross", cross)):
        values = torch.cat([gate.at_evaluation() for gate in gates[attention].values()]).tolist()
        log_a = all_log_a(gates, attention)
        kept = {a for a, value in zip(log_a, values, strict=True) if value == 1}
        assert kept == set(sorted(log_a, reverse=True)[:number])


@pytest.mark.parametrize("number", [0, 1, 4, 6])
def test_ties_go_to_the_heads_that_come_first(number):
    gates = make_gates({("encoder-self", 0): [2.5] * 3, ("cross", 0): [2.5] * 3})
    HeadPenalty(targets={"all": number}).decide(gates)
    assert at_evaluation(gates) == [1.0] * number + [0.0] * (6 - number)


def test_gates_without_a_budget_are_rounded_to_what_is_nearer_in_evaluation():
    nearer = [float(value >= 0.5) for value in at_evaluation(make_gates())]
    assert 0 < sum(nearer) < 9
    for targets, rest in ((None, slice(None)), ({"cross": 0}, slice(7))):
        gates = make_gates()
        HeadPenalty(targets=targets).decide(gates)
        assert at_evaluation(gates)[rest] == nearer[rest]
    assert at_evaluation(gates)[7:] == [0.0, 0.0]


def test_a_training_that_goes_on_behind_the_decision_decides_before_its_first_update():
    gates, state = make_gates(), PruningState()
    HeadPenalty(targets={"all": 4}, decide_at=90).advance(gates, state, 10)
    assert not any(gate.is_decided for gate in in_order(gates))
    # stopped, and started again with another number of updates to decide at
    HeadPenalty(targets={"all": 4}, decide_at=10).advance(gates, state, 10)
    assert count_heads(in_order(gates)).open == 4


def test_what_is_decided_stays_decided_without_a_gradient_and_the_multiplier_rests():
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(targets={"all": 4}, decide_at=2)
    for updates in (0, 1, 2):
        penalty.advance(gates, state, updates)
    decided, rest = at_evaluation(gates), state.multipliers.clone()
    for gate in in_order(gates):
        set_log_a(gate, (-gate.log_a.detach()).tolist())
    penalty.advance(gates, state, 3)
    assert at_evaluation(gates) == decided
    assert torch.equal(state.multipliers, rest)
    value = penalty(gates, state)
    assert value.item() == 0
    value.backward()
    assert not any(gate.weight.grad.any() for gate in in_order(gates))


def test_when_the_updates_go_back_a_new_training_begins():
    gates, state = make_gates(), PruningState()
    penalty = HeadPenalty(targets={"all": 4}, warmup_updates=5, decide_at=3)
    for updates in range(5):
        penalty.advance(gates, state, updates)
    set_log_a(gates["cross"][1], [0.0, 0.0])
    penalty.advance(gates, state, 0)
    assert not any(gate.is_decided for gate in in_order(gates))
    assert state.updates == 0
    assert not state.multipliers.any()
    assert state.start.tolist() == [pytest.approx(expected_heads(gates), abs=1e-6), -1, -1]


def test_a_training_that_is_stopped_goes_on_as_if_it_was_not():
    def train(updates, gates, state):
        penalty = HeadPenalty(targets={"encoder-self": 3, "cross": 1}, warmup_updates=6)
        for update in updates:
            set_log_a(gates["cross"][1], [1.5 - update, -1.0])
            penalty.advance(gates, state, update)
        return state

    straight = train(range(8), make_gates(), PruningState())
    gates, stopped = make_gates(), PruningState()
    train(range(4), gates, stopped)
    resumed = PruningState()
    resumed.load_state_dict(stopped.state_dict())
    train(range(3, 8), gates, resumed)  # the update of the checkpoint comes again
    assert torch.equal(resumed.multipliers, straight.multipliers)
    assert torch.equal(resumed.start, straight.start)


def test_in_validation_a_weight_counts_the_expected_heads_without_warm_up_or_gradient():
    gates = make_gates()
    value = HeadPenalty(weight=0.7, warmup_updates=1000).at_validation(gates)
    assert value.item() == pytest.approx(0.7 * expected_heads(gates), abs=1e-12)
    assert not value.requires_grad


@pytest.mark.parametrize("log_a", [-10.0, 0.3, 10.0])
@pytest.mark.parametrize(("targets", "heads"), [({"all": 2}, 9), ({"cross": 1}, 2)])
def test_in_validation_a_budget_costs_a_nat_for_each_head_until_it_is_decided(
    log_a, targets, heads
):
    gates = make_gates()
    for gate in in_order(gates):
        set_log_a(gate, [log_a] * gate.num_heads)
    assert HeadPenalty(targets=targets).at_validation(gates).item() == heads


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ({"all": 4}, 0),
        ({"all": 2}, 2),
        ({"all": 9}, 5),
        ({"encoder-self": 3, "cross": 1}, 0),
        ({"encoder-self": 7}, 4),
        # too few in one attention do not make up for too many in another
        ({"encoder-self": 4, "cross": 0}, 1 + 1),
    ],
)
def test_in_validation_a_decided_model_costs_its_distance_from_the_budget(targets, expected):
    gates = make_gates()
    HeadPenalty(targets={"encoder-self": 3, "cross": 1}).decide(gates)
    assert HeadPenalty(targets=targets).at_validation(gates).item() == expected


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
def test_a_training_that_goes_on_with_another_budget_starts_from_the_heads_it_has(before, after):
    gates, state = make_gates(), PruningState()
    before.advance(gates, state, 0)
    loaded = PruningState()
    loaded.load_state_dict(state.state_dict())
    after.advance(gates, loaded, 0)
    for group in after.targets:
        place = 2 if group == "cross" else 0
        assert loaded.start[place].item() == pytest.approx(expected_heads(gates, group), abs=1e-6)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (
            {"decoder-self": 1},
            r"--target-heads names decoder-self, which has no gates .*--head-gates, or leave it",
        ),
        ({"all": 10}, r"--target-heads asks for 10 heads in all, but only 9 .*give 9 or less"),
        ({"cross": 3}, r"--target-heads asks for 3 heads in cross, but only 2 .*give 2 or less"),
    ],
)
def test_a_budget_that_the_model_cannot_have_is_refused_with_the_remedy(targets, message):
    with pytest.raises(ValueError, match=message):
        HeadPenalty(targets=targets).check(make_gates())
