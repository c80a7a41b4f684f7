"""Sparse by degrees: the mapping is softmax at first, itself at the end, and mixed in between."""

import copy
from functools import partial

import pytest
import torch

from fairseq_entmax.mappings import (
    Mapping,
    entmax,
    fusedmax,
    parse_mappings,
    register_mapping,
    softmax,
    sq_pnorm_max,
)
from fairseq_entmax.mappings.rise import Rise, check_warmup, rises_of
from tests.mappings.reference import attention_scores

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


scores = partial(attention_scores, dtype=torch.float64)


def build(text, warmup=8):
    defaults = {"warmup": warmup}
    return parse_mappings(text)[0].build(4, torch.Generator().manual_seed(0), defaults)


def set_updates(mapping, updates):
    for rise in rises_of(mapping):
        rise.set_num_updates(updates)


@pytest.mark.parametrize("updates", [0, 1, 5, 8, 100])
@pytest.mark.parametrize("text", TEXTS)
def test_the_mapping_rises_in_proportion_to_the_updates(text, updates):
    mapping = build(text)
    set_updates(mapping, updates)
    expected = TEXTS[text](scores(), min(1.0, updates / 8))
    torch.testing.assert_close(mapping(scores()), expected, atol=2e-7, rtol=0)


@pytest.mark.parametrize("text", TEXTS)
def test_a_finished_rise_is_bitwise_the_mapping_without_one(text):
    risen, plain = build(text), build(text, 0)
    set_updates(risen, 8)
    assert torch.equal(risen(scores()), plain(scores()))
    assert str(risen.epsilon()) == str(plain.epsilon())
    for name, value in plain.head_values().items():
        assert torch.equal(risen.head_values()[name].nan_to_num(), value.nan_to_num())
    assert not any("rise" in name for name in plain.state_dict())


def test_head_values_are_the_current_ones_and_rising_ones_are_marked():
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


class Tempered(Mapping):
    """A mapping as docs/extending.md describes one that rises: softmax of rising scores."""

    text_parameters, rising = ("warmup",), ("strength",)

    @classmethod
    def from_text(cls, parameters, num_heads, generator):
        mapping = cls()
        mapping.rise = Rise(parameters["warmup"]) if parameters.get("warmup") else None
        return mapping

    def forward(self, scores):
        return softmax(scores * (1 + self.scaled_by_rise(3.0)))

    def head_values(self):
        return {"strength": torch.tensor([1 + self.scaled_by_rise(3.0)]), "fixed": torch.ones(1)}


def test_a_users_mapping_rises_if_its_text_has_a_warmup():
    register_mapping("tempered", Tempered)
    mapping = build("tempered")
    set_updates(mapping, 4)
    assert torch.equal(mapping(scores()), softmax(scores() * 2.5))
    assert mapping.changing == ("strength",)


def test_kernels_receive_the_current_alpha():
    mapping = build("sparsemax")
    assert mapping.epsilon() is None
    assert not mapping.is_softmax
    set_updates(mapping, 2)
    assert mapping.epsilon() == 0.25


@pytest.mark.parametrize("text", ["sparsemax", "softmax|sparsemax|softmax|entmax15"])
def test_the_share_is_saved_and_missing_from_a_mapping_without_a_rise(text):
    mapping = build(text).half()
    set_updates(mapping, 3)
    state = mapping.state_dict()
    again, other, plain = build(text), build(text, 6), build(text, 0)
    again.load_state_dict(state)
    assert torch.equal(again(scores()), copy.deepcopy(mapping).float()(scores()))
    other.load_state_dict(state)  # a shorter rise: the share follows from the saved updates
    assert torch.equal(other(scores()), TEXTS[text](scores(), 0.5))
    assert other.risen == 0.5
    set_updates(mapping, 8)
    other.load_state_dict(mapping.state_dict())
    assert torch.equal(other(scores()), TEXTS[text](scores(), 1.0))
    plain.load_state_dict(state)  # without a rise, nothing is loaded
    again.load_state_dict(plain.state_dict())  # a checkpoint without a rise starts it
    assert torch.equal(again(scores()), TEXTS[text](scores(), 0.0))


def test_pruning_keeps_the_share():
    mapping = build("softmax|sparsemax|softmax|sparsemax")
    set_updates(mapping, 4)
    mapping.keep_heads([1, 3])
    assert torch.equal(mapping(scores()[:, [1, 3]]), entmax(scores()[:, [1, 3]], 1.5))


def test_learned_values_have_gradients_once_the_rise_has_begun():
    mapping = build("entmax:tv=learned")
    for updates in (0, 4):
        set_updates(mapping, updates)
        mapping.zero_grad()
        mapping(scores()).pow(2).sum().backward()
        assert all(one.grad.isfinite().all() for one in mapping.parameters())
        assert all(one.grad.any() for one in mapping.parameters()) == (updates > 0)


@pytest.mark.parametrize("value", ["-1", "1.5", "x", "", True, 10**10, 10**400, None])
def test_an_invalid_number_of_updates_is_refused(value):
    with pytest.raises(ValueError, match=r"^warmup must be a whole number of updates from 0 to 1,"):
        check_warmup(value)
