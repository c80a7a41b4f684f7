"""Heads that no gate may close: the penalty is that of a model without them, plus heads that stay."""

import math

import pytest
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.logging import metrics

from fairseq_entmax.criterions.penalty import HeadPenalty, count_heads
from fairseq_entmax.modules import HardConcreteGate, PruningState
from tests.criterions.test_penalty import LOG_A, in_order, make_gates, set_log_a
from tests.support import batch, build_model, tiny_task

# Attention, layer, and log a of two heads that come first there, one that a gate would close
ADDED = {("cross", 1): [-8.0, 0.3]}


def with_protected():
    """The gates of :func:`make_gates`, and two protected heads in front of one layer's."""
    gates = {}
    for (attention, layer), values in LOG_A.items():
        added = ADDED.get((attention, layer), [])
        gate = HardConcreteGate(len(added + values), protected=range(len(added))).double()
        gates.setdefault(attention, {})[layer] = gate
        set_log_a(gate, added + values)
    return gates


def with_two_more(targets):
    return targets and {
        name: number + 2 * (name in ("all", "cross")) for name, number in targets.items()
    }


@pytest.mark.parametrize("targets", [None, {"all": 4}, {"encoder-self": 2, "cross": 1}])
def test_penalty_gradients_and_multipliers_are_those_of_the_other_heads(targets):
    found = []
    for gates, wanted in ((make_gates(), targets), (with_protected(), with_two_more(targets))):
        penalty, state = HeadPenalty(0.7, wanted, 4, multiplier_lr=0.1), PruningState()
        for updates in range(6):
            penalty.advance(gates, state, updates)
        value = penalty(gates, state)
        value.backward()
        gradient = torch.cat([gate.weight.grad for gate in in_order(gates)])
        found.append((value.detach(), gradient, state.multipliers, penalty.at_validation(gates)))
    free, protected = found
    assert protected[1][7:9].tolist() == [0.0, 0.0]
    others = (protected[0], torch.cat([protected[1][:7], protected[1][9:]]), *protected[2:])
    torch.testing.assert_close(others, free, atol=1e-12, rtol=0)


@pytest.mark.parametrize("number", [0, 3, 7])
def test_protected_heads_are_among_those_that_stay(number):
    gates = with_protected()
    penalty = HeadPenalty(targets={"all": 2 + number}, decide_at=0)
    penalty.advance(gates, PruningState(), 0)
    assert count_heads(in_order(gates)).open == 2 + number
    assert gates["cross"][1].at_evaluation()[:2].tolist() == [1.0, 1.0]
    assert gates["cross"][1].decision[:2].tolist() == [1, 1]
    assert penalty.at_validation(gates).item() == 0
    alone = make_gates()
    HeadPenalty(targets={"all": number}).decide(alone)
    values = torch.cat([gate.at_evaluation() for gate in in_order(gates)])
    expected = torch.cat([gate.at_evaluation() for gate in in_order(alone)])
    assert torch.equal(torch.cat([values[:7], values[9:]]), expected)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"cross": 1}, r"asks for 1 heads in cross, where 2 copy and always stay: give 2 or more"),
        ({"all": 0}, r"asks for 0 heads in all, where 2 copy and always stay: .*--gate-copy-heads"),
        ({"cross": 5}, r"asks for 5 heads in cross, but only 4 have gates"),
    ],
)
def test_a_target_below_the_protected_heads_is_refused_with_the_remedy(targets, message):
    with pytest.raises(ValueError, match=message):
        HeadPenalty(targets=targets).check(with_protected())


# --- models that copy --------------------------------------------------------------


def copy_model(**options):
    options = {"copy_heads": "2", "head_gates": "encoder-self,cross", **options}
    return build_model("entmax_copy_transformer", attn_mapping="softmax", **options)


def criterion(**options):
    options = {"sentence_avg": False, "label_smoothing": 0.1, "max_update": 0, **options}
    name = "copy_cross_entropy_with_head_l0"
    given = CRITERION_DATACLASS_REGISTRY[name](**options)
    return CRITERION_REGISTRY[name].build_criterion(given, tiny_task())


@pytest.mark.parametrize("gated", [False, True])
def test_the_loss_has_lambda_for_each_head_that_may_be_closed(gated, monkeypatch):
    model = copy_model(gate_copy_heads=gated)
    data = batch([9, 7, 4], [6, 8, 5])
    with metrics.aggregate(new_root=True) as meters:
        losses = [criterion(l0_weight=weight)(model, data) for weight in (0.3, 0.0)]
        criterion(l0_weight=0.3).reduce_metrics([losses[0][2]])
        logged = meters.get_smoothed_values()
    shift = 0.33 * math.log(0.1 / 1.1)
    each = 1 / (1 + math.exp(shift - 2.5))
    penalty = losses[0][1] * 0.3 * each * (15 + gated)
    assert (losses[0][0] - losses[1][0]).item() == pytest.approx(penalty, abs=1e-3)
    assert logged["heads_expected"] == pytest.approx(each * (15 + gated) + 1 - gated, abs=1e-2)
    assert logged["heads_open"] == 16
