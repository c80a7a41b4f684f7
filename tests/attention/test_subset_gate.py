"""Subset gates: exactly k heads are open, and training draws the paper's relaxation."""

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
    """Two gates in float64 with the given ``log a`` that draw by :data:`NOISE`."""
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
    """The relaxed subset by the paper's formula, one number at a time."""
    scores = [s - math.log(-math.log(u)) for s, u in zip(SCORES, NOISE, strict=True)]
    opened = [0.0] * len(scores)
    for _ in range(number):
        weights = [math.exp(score / temperature) for score in scores]
        taken = [weight / sum(weights) for weight in weights]
        opened = [one + part for one, part in zip(opened, taken, strict=True)]
        scores = [score + math.log(1 - part) for score, part in zip(scores, taken, strict=True)]
    return opened


@pytest.mark.parametrize(("number", "progress"), [(1, 0.0), (3, 0.5), (6, 0.0)])
def test_a_draw_follows_the_papers_formula_over_all_gates(number, progress):
    gates, temperature = make(temperature=0.5), 0.5 if progress == 0 else math.sqrt(0.5 * 0.01)
    SubsetGate.steer(gates, number, progress)
    drawn = values(gates)
    torch.testing.assert_close(drawn.tolist(), relaxed(number, temperature), atol=1e-9, rtol=0)
    assert drawn.sum().item() == pytest.approx(number)
    drawn[0].backward()
    # Each gate depends on the scores of all heads, in other layers too
    assert all((gate.weight.grad != 0).all() for gate in gates)


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_opens_exactly_the_k_heads_with_the_largest_scores(training):
    gates = [gate.train(training) for gate in make()]
    assert evaluated(gates) == [1.0] * 8  # before the number of heads is set
    for number, expected in ((2.25, 3), (2, 2), (8, 8), (0, 0)):
        SubsetGate.steer(gates, number, 0.3)
        assert evaluated(gates) == [float(s in sorted(SCORES)[8 - expected :]) for s in SCORES]
        assert count_heads("expected", *gates) == pytest.approx(number)
    equal = make([0.5] * 8)
    SubsetGate.steer(equal, 3, 0.3)
    assert sum(evaluated(equal)) == 3


def test_copy_heads_are_open_in_addition_to_the_chosen_heads():
    gates, penalty = make(protected=(1,)), HeadPenalty(targets={"all": 4}, decide_at=2)
    penalty.advance({"cross": dict(enumerate(gates))}, PruningState(), 1)
    drawn = values(gates).tolist()
    assert drawn[1] == drawn[5] == 1
    assert sum(drawn) == pytest.approx(4)
    assert evaluated(gates) == [0, 1, 1, 0, 0, 1, 0, 1]
    SubsetGate.steer(gates, 6, 0.5)
    assert values(gates).tolist() == [1.0] * 8


def test_the_penalty_lowers_the_number_of_heads_to_the_target_and_is_zero():
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
        # Without a choice, the gradient is zero and not None
        learns = updates not in (0, 6)
        assert all((gate.weight.grad != 0).any() == learns for gate in gates)
    assert drawn.tolist() == evaluated(gates)
    with pytest.raises(ValueError, match="keeps a given number of heads: give --target-heads"):
        HeadPenalty(0.1).check(by_place)


def test_a_checkpoint_restores_its_kind_of_gates():
    options = {"head_gates": "encoder-self,cross", "gate": "subset"}
    model, again = build_model(**options), build_model(**options)
    concrete = build_model(head_gates="encoder-self,cross")
    for number, gate in enumerate(all_gates(concrete)):
        gate.weight.data.copy_(torch.randn(4, generator=torch.Generator().manual_seed(number)))
    # Scores of hard-concrete gates are taken over
    model.load_state_dict(concrete.state_dict())
    penalty = HeadPenalty(0.0, {"all": 5}, 2, 3)
    # Before and after the decision
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


def test_a_head_is_chosen_once_even_when_scores_are_far_apart():
    gate = SubsetGate(4, temperature=0.014)
    SubsetGate.steer([gate], 2, 0.0)
    with torch.no_grad():
        gate.weight.copy_(torch.tensor([12.0, -5.0, -6.0, -7.0]) / gate.lr_factor)
    gate.use_draw(torch.full((4,), 0.5))
    torch.testing.assert_close(gate.train()().detach(), torch.tensor([1.0, 1.0, 0.0, 0.0]))
