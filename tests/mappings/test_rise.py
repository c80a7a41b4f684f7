"""Sparse by degrees: softmax at first, the mapping itself at the end, and what lies between."""

import copy

import pytest
import torch

from fairseq_entmax.mappings import entmax, fusedmax, parse_mappings, softmax, sq_pnorm_max
from fairseq_entmax.mappings.rise import check_warmup, rises_of
from tests.mappings.reference import random_rows

TEXTS = {
    "sparsemax": lambda z, s: entmax(z, 1 + s),
    "entmax15": lambda z, s: entmax(z, 1 + 0.5 * s),
    "entmax:init=1.4": lambda z, s: entmax(z, 1 + 0.4 * s),
    "fusedmax:alpha=1.5:tv=0.3": lambda z, s: fusedmax(z, 0.3 * s, 1 + 0.5 * s),
    "entmax:init=1.4:tv=learned:tv_init=0.2": lambda z, s: fusedmax(z, 0.2 * s, 1 + 0.4 * s),
    "sqpnormmax:p=1.4": lambda z, s: s * sq_pnorm_max(z, 1.4) + (1 - s) * softmax(z),
    "softmax|sparsemax|softmax|entmax15": lambda z, s: torch.stack(
        [entmax(z[:, head], 1 + s * e) for head, e in enumerate((0, 1, 0, 0.5))], 1
    ),
}


def build(text, warmup=8):
    defaults = {"warmup": warmup}
    return parse_mappings(text)[0].build(4, torch.Generator().manual_seed(0), defaults)


def scores():
    made = random_rows(24, 9, 2.0).view(2, 4, 3, 9)
    made[0, ..., 4] = -torch.inf
    return made


def set_updates(mapping, updates):
    for rise in rises_of(mapping):
        rise.set_num_updates(updates)


@pytest.mark.parametrize("updates", [0, 1, 5, 8, 100])
@pytest.mark.parametrize("text", TEXTS)
def test_a_share_of_the_mapping_is_there_after_a_share_of_the_updates(text, updates):
    mapping = build(text)
    set_updates(mapping, updates)
    expected = TEXTS[text](scores(), min(1.0, updates / 8))
    torch.testing.assert_close(mapping(scores()), expected, atol=2e-7, rtol=0)


@pytest.mark.parametrize("text", TEXTS)
def test_a_finished_mapping_is_to_the_bit_the_one_without_a_rise(text):
    risen, plain = build(text), build(text, 0)
    set_updates(risen, 8)
    assert torch.equal(risen(scores()), plain(scores()))
    assert str(risen.epsilon()) == str(plain.epsilon())
    for name, value in plain.head_values().items():
        assert torch.equal(risen.head_values()[name].nan_to_num(), value.nan_to_num())
    assert not any("rise" in name for name in plain.state_dict())


def test_values_are_said_as_they_stand_and_those_that_rise_are_told_from_others():
    mapping = build("fusedmax:tv=0.3")
    set_updates(mapping, 2)
    assert {name: value.tolist() for name, value in mapping.head_values().items()} == {
        "alpha": [1.25],
        "tv": [pytest.approx(0.075)],
    }
    assert (mapping.changing, mapping.learned) == (("alpha", "tv"), ())
    per_head = build("softmax|sparsemax|softmax|sqpnormmax:p=learned")
    assert (per_head.changing, per_head.learned) == (("alpha", "p"), ("p",))
    assert per_head.changes("alpha") == [False, True, False, False]
    assert build("sqpnormmax").changing == ()


def test_a_kernel_is_told_the_present_alpha_and_softmax_at_first_needs_none():
    mapping = build("sparsemax")
    assert mapping.epsilon() is None
    assert not mapping.is_softmax
    set_updates(mapping, 2)
    assert mapping.epsilon() == 0.25


@pytest.mark.parametrize("text", ["sparsemax", "softmax|sparsemax|softmax|entmax15"])
def test_the_share_is_in_the_state_and_absent_from_a_mapping_without_a_rise(text):
    mapping = build(text).half()
    set_updates(mapping, 3)
    state = mapping.state_dict()
    again, other, plain = build(text), build(text, 6), build(text, 0)
    again.load_state_dict(state)
    assert torch.equal(again(scores()), copy.deepcopy(mapping).float()(scores()))
    other.load_state_dict(state)  # of another length: as far as these updates bring it
    assert torch.equal(other(scores()), TEXTS[text](scores(), 0.5))
    plain.load_state_dict(state)  # which has no rise to go on with
    again.load_state_dict(plain.state_dict())  # and this begins it
    assert torch.equal(again(scores()), TEXTS[text](scores(), 0.0))


def test_pruning_leaves_the_share():
    mapping = build("softmax|sparsemax|softmax|sparsemax")
    set_updates(mapping, 4)
    mapping.keep_heads([1, 3])
    assert torch.equal(mapping(scores()[:, [1, 3]]), entmax(scores()[:, [1, 3]], 1.5))


def test_what_is_learned_has_a_gradient_from_the_first_update_on():
    mapping = build("entmax:tv=learned")
    for updates in (0, 4):
        set_updates(mapping, updates)
        mapping.zero_grad()
        mapping(scores()).pow(2).sum().backward()
        assert all(one.grad.isfinite().all() for one in mapping.parameters())
        assert all(one.grad.any() for one in mapping.parameters()) == (updates > 0)


@pytest.mark.parametrize("value", ["-1", "1.5", "x", "", True, 10**10, "٣", None])
def test_a_number_of_updates_that_is_none_is_refused(value):
    with pytest.raises(
        ValueError, match=r"^warmup must be a whole number of updates from 0 to 1,0"
    ):
        check_warmup(value)


def test_the_text_names_it_and_softmax_has_none():
    (spec,) = parse_mappings("sparsemax:warmup=5")
    assert str(spec) == "sparsemax:warmup=5"
    assert spec.build(4, defaults={"warmup": 9}).rise.length == 5
    with pytest.raises(ValueError, match="unknown parameter 'warmup=5' of mapping 'softmax'"):
        parse_mappings("softmax:warmup=5")
