"""Subset gates: exactly k heads are open, and what training draws is the paper's relaxation."""

import math

import pytest
import torch

from fairseq_entmax.attention import HardConcreteGate, PruningState, SubsetGate
from fairseq_entmax.attention import gates as gates_module
from fairseq_entmax.criterions.penalty import HeadPenalty, count_heads
from fairseq_entmax.models.checkpoint_model import model_of_state
from fairseq_entmax.pruning import prune_state
from tests.pruning.test_surgery import state_of
from tests.support import build_model

SCORES = [[0.3, -1.0, 2.0, 0.1], [0.7, 0.2, -0.4, 1.1]]
NOISE = [[0.9, 0.2, 0.4, 0.6], [0.1, 0.95, 0.5, 0.3]]
ALL_SCORES, ALL_NOISE = ([*first, *second] for first, second in (SCORES, NOISE))


def make(scores=SCORES, **options):
    """Gates in float64 with these ``log a`` that draw by :data:`NOISE`."""
    gates = [SubsetGate(len(row), **options).double() for row in scores]
    with torch.no_grad():
        for gate, row in zip(gates, scores, strict=True):
            gate.weight.copy_(torch.tensor(row, dtype=torch.float64) / gate.lr_factor)
    for gate, uniform in zip(gates, NOISE, strict=True):
        gate.use_draw(torch.tensor(uniform, dtype=torch.float64))
    return gates


def values(gates):
    return torch.cat([gate() for gate in gates])


def evaluated(gates):
    return torch.cat([gate.at_evaluation() for gate in gates]).tolist()


def relaxed(number, temperature):
    """The relaxed subset by its formula, one number at a time."""
    scores = [s - math.log(-math.log(u)) for s, u in zip(ALL_SCORES, ALL_NOISE, strict=True)]
    opened = [0.0] * len(scores)
    for _ in range(number):
        weights = [math.exp(score / temperature) for score in scores]
        taken = [weight / sum(weights) for weight in weights]
        opened = [one + part for one, part in zip(opened, taken, strict=True)]
        scores = [score + math.log(1 - part) for score, part in zip(scores, taken, strict=True)]
    return opened


@pytest.mark.parametrize("number", [1, 3, 6])
def test_a_draw_is_the_papers_formula_over_all_gates_with_one_target(number):
    gates = make(temperature=0.5)
    SubsetGate.steer(gates, number, 0.0)
    drawn = values(gates)
    torch.testing.assert_close(drawn.tolist(), relaxed(number, 0.5), atol=1e-9, rtol=0)
    assert drawn.sum().item() == pytest.approx(number)
    drawn[0].backward()
    # One head's gate depends on the scores of all, those of other layers too
    assert all((gate.weight.grad != 0).all() for gate in gates)


def test_the_temperature_falls_until_draws_are_the_subset_of_the_largest_noisy_scores():
    gates = make()
    SubsetGate.steer(gates, 3, 0.5)
    middle = values(gates)
    torch.testing.assert_close(
        middle.tolist(), relaxed(3, math.sqrt(0.33 * 0.01)), atol=1e-9, rtol=0
    )
    SubsetGate.steer(gates, 3, 1 - 1e-9)
    noisy = torch.tensor(SCORES).flatten() - (-torch.tensor(NOISE).flatten().log()).log()
    expected = torch.zeros(8).scatter(0, noisy.topk(3).indices, 1.0)
    torch.testing.assert_close(values(gates).float(), expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("training", [True, False])
def test_in_evaluation_exactly_k_heads_are_open_and_they_have_the_largest_scores(training):
    gates = [gate.train(training) for gate in make()]
    assert evaluated(gates) == [1.0] * 8  # as long as nobody says how many
    for number, expected in ((2.25, 3), (2, 2), (8, 8), (0, 0)):
        SubsetGate.steer(gates, number, 0.3)
        largest = sorted(ALL_SCORES)[8 - expected :]
        assert evaluated(gates) == [float(score in largest) for score in ALL_SCORES]
        assert count_heads(gates).expected == pytest.approx(number)
    equal = make([[0.5] * 4] * 2)
    SubsetGate.steer(equal, 3, 0.3)
    assert sum(evaluated(equal)) == 3


def test_heads_that_copy_are_open_beside_the_others_and_take_no_place():
    gates = make(protected=(1,))
    SubsetGate.steer(gates, 2, 0.5)
    drawn = values(gates).tolist()
    assert drawn[1] == drawn[5] == 1
    assert sum(drawn) == pytest.approx(4)
    assert evaluated(gates) == [0, 1, 1, 0, 0, 1, 0, 1]


@pytest.mark.parametrize("number", [8, 3])
def test_gates_that_are_all_open_or_decided_have_a_gradient_of_zero(number):
    gates = make()
    SubsetGate.steer(gates, number, 1.0)
    for gate in gates:
        gate.decide(gate.at_evaluation() > 0.5)
    drawn = values(gates)
    assert drawn.tolist() == evaluated(gates)
    assert sum(drawn) == number
    drawn.sum().backward()
    assert all(gate.weight.grad.tolist() == [0.0] * 4 for gate in gates)


def test_the_penalty_steers_them_from_all_heads_to_the_target_and_adds_nothing():
    penalty, state, gates = HeadPenalty(0.0, {"all": 3}, 4, 6), PruningState(), make()
    by_place = {"cross": dict(enumerate(gates))}
    penalty.check(by_place)
    for updates, expected in ((0, 8), (1, 7), (2, 6), (3, 5), (4, 3), (5, 3), (6, 3)):
        penalty.advance(by_place, state, updates)
        assert sum(evaluated(gates)) == expected
        assert penalty(by_place, state).item() == pytest.approx(0, abs=1e-5)
        assert all(gate.is_decided for gate in gates) == (updates == 6)
    with pytest.raises(
        ValueError, match="--gate subset keeps a number of heads: give --target-heads"
    ):
        HeadPenalty(0.1).check(by_place)


def subset_model(gate="subset"):
    options = {"head_gates": "encoder-self,cross", "gate": gate}
    return build_model(**options), options


def all_gates(model):
    return [gate for layers in model.head_gates().values() for gate in layers.values()]


def test_a_checkpoint_says_which_gates_it_has_and_goes_on_with_them():
    model, options = subset_model()
    penalty = HeadPenalty(0.0, {"all": 5}, 2, 3)
    with torch.no_grad():
        for number, gate in enumerate(all_gates(model)):
            gate.weight.copy_(torch.randn(4, generator=torch.Generator().manual_seed(number)))
    penalty.advance(model.head_gates(), model.pruning_state, 2)
    state = state_of(model, **options)
    saved = model_of_state(state, "it.pt")
    assert sum(sum(saved.gates(one)) for one in saved.attentions) == 5 + 8  # eight have no gates
    again, _ = subset_model()
    again.load_state_dict(model.state_dict())
    assert evaluated(all_gates(again)) == evaluated(all_gates(model))
    # Without a word of options, before the decision and behind it
    for undecided in (True, False):
        _, report = prune_state(state, "it.pt", undecided=undecided)
        counts = report.heads_after
        assert sum(counts["encoder-self"] + counts["cross"]) == 5
        assert not report.undecided
        penalty.advance(model.head_gates(), model.pruning_state, 3)
        state = state_of(model, **options)


def test_scores_of_hard_concrete_gates_are_taken_over_and_not_the_other_way():
    subset, _ = subset_model()
    concrete, _ = subset_model("hard-concrete")
    assert isinstance(all_gates(concrete)[0], HardConcreteGate)
    with torch.no_grad():
        all_gates(concrete)[0].weight.fill_(0.4)
    subset.load_state_dict(concrete.state_dict())
    assert all_gates(subset)[0].log_a.tolist() == pytest.approx([4.0] * 4)
    with pytest.raises(ValueError, match="give the options that it was trained with"):
        concrete.load_state_dict(subset.state_dict())


def test_what_cannot_work_is_refused_by_name():
    with pytest.raises(
        ValueError, match="--gate: unknown gate 'l1'; allowed: hard-concrete, subset"
    ):
        subset_model("l1")
    with pytest.raises(ValueError, match="--checkpoint-activations"):
        build_model(head_gates="cross", gate="subset", checkpoint_activations=True)


def test_a_pass_of_a_model_draws_once_and_trains_the_scores_of_every_gate():
    model, _ = subset_model()
    penalty = HeadPenalty(0.0, {"all": 5}, 0, 9)
    penalty.advance(model.head_gates(), model.pruning_state, 4)
    gates_module.draw(all_gates(model.train()), 1, 2, 3)
    first = values(all_gates(model))
    gates_module.draw(all_gates(model), 1, 2, 3)
    again = values(all_gates(model))
    assert torch.equal(first, again)
    (first.square().sum() + again.sum()).backward()
    assert all(gate.weight.grad.abs().sum() > 0 for gate in all_gates(model))
