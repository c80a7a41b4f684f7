"""Subset gates: exactly k heads are open, and what training draws is the paper's relaxation."""

import math

import pytest
import torch

from fairseq_entmax.attention import PruningState, SubsetGate
from fairseq_entmax.criterions.penalty import HeadPenalty, count_heads
from fairseq_entmax.models.checkpoint_model import model_of_state
from fairseq_entmax.pruning import prune_state
from tests.pruning.test_surgery import state_of
from tests.support import all_gates, build_model

SCORES = [0.3, -1.0, 2.0, 0.1, 0.7, 0.2, -0.4, 1.1]
NOISE = [0.9, 0.2, 0.4, 0.6, 0.1, 0.95, 0.5, 0.3]


def make(scores=SCORES, **options):
    """Two gates in float64 with these ``log a`` that draw by :data:`NOISE`."""
    gates = [SubsetGate(4, **options).double() for _ in range(2)]
    halves = torch.tensor([scores, NOISE], dtype=torch.float64).split(4, dim=1)
    for gate, (log_a, uniform) in zip(gates, halves, strict=True):
        gate.weight.data.copy_(log_a / gate.lr_factor)
        gate.use_draw(uniform)
    return gates


def values(gates):
    return torch.cat([gate() for gate in gates])


def evaluated(gates):
    return torch.cat([gate.at_evaluation() for gate in gates]).tolist()


def relaxed(number, temperature):
    """The relaxed subset by its formula, one number at a time."""
    scores = [s - math.log(-math.log(u)) for s, u in zip(SCORES, NOISE, strict=True)]
    opened = [0.0] * len(scores)
    for _ in range(number):
        weights = [math.exp(score / temperature) for score in scores]
        taken = [weight / sum(weights) for weight in weights]
        opened = [one + part for one, part in zip(opened, taken, strict=True)]
        scores = [score + math.log(1 - part) for score, part in zip(scores, taken, strict=True)]
    return opened


@pytest.mark.parametrize(("number", "progress"), [(1, 0.0), (3, 0.5), (6, 0.0)])
def test_a_draw_is_the_papers_formula_over_all_gates_with_one_target(number, progress):
    gates, temperature = make(temperature=0.5), 0.5 if progress == 0 else math.sqrt(0.5 * 0.01)
    SubsetGate.steer(gates, number, progress)
    drawn = values(gates)
    torch.testing.assert_close(drawn.tolist(), relaxed(number, temperature), atol=1e-9, rtol=0)
    assert drawn.sum().item() == pytest.approx(number)
    drawn[0].backward()
    # One head's gate depends on the scores of all, those of other layers too
    assert all((gate.weight.grad != 0).all() for gate in gates)


def test_the_temperature_falls_until_draws_are_the_subset_of_the_largest_noisy_scores():
    gates = make()
    SubsetGate.steer(gates, 3, 1 - 1e-9)
    noisy = torch.tensor(SCORES) - (-torch.tensor(NOISE).log()).log()
    expected = torch.zeros(8).scatter(0, noisy.topk(3).indices, 1.0)
    torch.testing.assert_close(values(gates).float(), expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("training", [True, False])
def test_in_evaluation_exactly_k_heads_are_open_and_they_have_the_largest_scores(training):
    gates = [gate.train(training) for gate in make()]
    assert evaluated(gates) == [1.0] * 8  # as long as nobody says how many
    for number, expected in ((2.25, 3), (2, 2), (8, 8), (0, 0)):
        SubsetGate.steer(gates, number, 0.3)
        assert evaluated(gates) == [float(s in sorted(SCORES)[8 - expected :]) for s in SCORES]
        assert count_heads(gates).expected == pytest.approx(number)
    equal = make([0.5] * 8)
    SubsetGate.steer(equal, 3, 0.3)
    assert sum(evaluated(equal)) == 3


def test_heads_that_copy_are_open_beside_the_others_and_take_no_place():
    gates = make(protected=(1,))
    SubsetGate.steer(gates, 2, 0.5)
    drawn = values(gates).tolist()
    assert drawn[1] == drawn[5] == 1
    assert sum(drawn) == pytest.approx(4)
    assert evaluated(gates) == [0, 1, 1, 0, 0, 1, 0, 1]


def test_the_penalty_steers_them_from_all_heads_to_the_target_and_adds_nothing():
    penalty, state, gates = HeadPenalty(0.0, {"all": 3}, 4, 6), PruningState(), make()
    by_place = {"cross": dict(enumerate(gates))}
    penalty.check(by_place)
    for updates, expected in ((0, 8), (1, 7), (2, 6), (3, 5), (4, 3), (5, 3), (6, 3)):
        penalty.advance(by_place, state, updates)
        assert sum(evaluated(gates)) == expected
        assert penalty(by_place, state).item() == pytest.approx(0, abs=1e-5)
        assert all(gate.is_decided for gate in gates) == (updates == 6)
        for gate in gates:
            gate.weight.grad = None
        drawn = values(gates)
        drawn.square().sum().backward()
        # Where there is nothing to choose the gradient is zero, not none
        learns = updates not in (0, 6)
        assert all((gate.weight.grad != 0).any() == learns for gate in gates)
    assert drawn.tolist() == evaluated(gates)
    with pytest.raises(ValueError, match="--gate keep a number of heads: give --target-heads"):
        HeadPenalty(0.1).check(by_place)


def test_a_checkpoint_says_which_gates_it_has_and_goes_on_with_them():
    options = {"head_gates": "encoder-self,cross", "gate": "subset"}
    model, again = build_model(**options), build_model(**options)
    concrete = build_model(head_gates="encoder-self,cross")
    for number, gate in enumerate(all_gates(concrete)):
        gate.weight.data.copy_(torch.randn(4, generator=torch.Generator().manual_seed(number)))
    # Scores of the other gates are taken over
    model.load_state_dict(concrete.state_dict())
    penalty = HeadPenalty(0.0, {"all": 5}, 2, 3)
    # Before the decision and behind it
    for updates in (2, 3):
        penalty.advance(model.head_gates(), model.pruning_state, updates)
        again.load_state_dict(model.state_dict())
        assert evaluated(all_gates(again)) == evaluated(all_gates(model))
        state = state_of(model, **options)
        checkpoint = model_of_state(state, "it.pt")
        # Eight heads have no gates
        assert sum(sum(checkpoint.gates(one)) for one in checkpoint.attentions) == 5 + 8
        _, report = prune_state(state, "it.pt")
        assert sum(report.heads_after["encoder-self"] + report.heads_after["cross"]) == 5
        assert not report.undecided
    with pytest.raises(ValueError, match="give the options that it was trained with"):
        concrete.load_state_dict(model.state_dict())


def test_what_cannot_work_is_refused_by_name():
    with pytest.raises(ValueError, match="--gate: unknown gate 'l1'; allowed: hard-concrete, su"):
        build_model(head_gates="cross", gate="l1")
    with pytest.raises(ValueError, match="--checkpoint-activations"):
        build_model(head_gates="cross", gate="subset", checkpoint_activations=True)


def test_a_head_is_taken_once_however_far_the_scores_are_apart():
    gate = SubsetGate(4, temperature=0.014)
    SubsetGate.steer([gate], 2, 0.0)
    with torch.no_grad():
        gate.weight.copy_(torch.tensor([12.0, -5.0, -6.0, -7.0]) / gate.lr_factor)
    gate.use_draw(torch.full((4,), 0.5))
    torch.testing.assert_close(gate.train()().detach(), torch.tensor([1.0, 1.0, 0.0, 0.0]))
