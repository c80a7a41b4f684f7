"""A temperature of any mapping: what it divides, what it learns, and that 1 is nothing."""

import math

import pytest
import torch

from fairseq_entmax.mappings import parse_mapping, parse_mappings
from tests.mappings.reference import random_rows

TEXTS = ["softmax", "sparsemax", "entmax:init=1.3", "fusedmax", "oscarmax", "sqpnormmax"]
every_text = pytest.mark.parametrize("text", TEXTS)


def build(text, heads=4):
    return parse_mapping(text).build(heads, torch.Generator().manual_seed(0)).double()


def scores():
    """``(2, 4, 3, 9)`` with padding, and a query without any key."""
    values = random_rows(24, 9, 2.0).view(2, 4, 3, 9)
    values[1, ..., 6:] = -math.inf
    values[0, :, 0] = -math.inf
    return values


@every_text
def test_scores_are_divided_by_it_whether_fixed_or_learned(text):
    expected = build(text)(scores() / 3)
    for how in ("=3", "=learned:temperature_init=3", "=learned:temperature_init=3:share=layer"):
        mapping = build(f"{text}:temperature{how}")
        torch.testing.assert_close(mapping(scores()), expected, atol=1e-7, rtol=0)
        found = mapping.head_values()["temperature"].tolist()
        assert found == pytest.approx([3.0] * len(found), abs=1e-6)
        assert ("temperature" in mapping.learned) is ("learned" in how)


@every_text
def test_1_is_no_operation_and_a_learned_one_starts_there(text):
    mapping, plain = build(f"{text}:temperature=1"), build(text)
    assert mapping.scaled(given := scores()) is given
    assert mapping.score_scale() is None
    assert mapping.state_dict().keys() == plain.state_dict().keys()
    assert mapping.head_values().keys() == plain.head_values().keys()
    learned = build(f"{text}:temperature=learned")
    assert learned.head_values()["temperature"].tolist() == [1.0] * 4
    assert torch.equal(learned(scores()), plain(scores()))


@pytest.mark.parametrize("text", ["softmax", "sparsemax", "entmax", "entmax:tv=learned"])
def test_gradcheck_holds_for_it_and_for_scores_with_masks(text):
    mapping = build(f"{text}:temperature=learned:temperature_init=2:lr_factor=3")
    is_masked = scores() == -torch.inf

    def probs(values, *parameters):
        return mapping(values.masked_fill(is_masked, -torch.inf))

    inputs = scores().masked_fill(is_masked, 0.0).requires_grad_(), *mapping.parameters()
    assert torch.autograd.gradcheck(probs, inputs, atol=1e-6)


def test_gamma_of_the_squared_norm_is_the_same():
    hot, wide = build("sqpnormmax:temperature=2"), build("sqpnormmax:gamma=2")
    torch.testing.assert_close(hot(scores()), wide(scores()), atol=1e-9, rtol=0)


def test_it_is_there_from_the_first_update_of_a_warmup():
    mapping = build("sparsemax:temperature=2:warmup=4")
    expected = torch.softmax(scores() / 2, -1).nan_to_num()
    torch.testing.assert_close(mapping(scores()), expected, atol=1e-9, rtol=0)
    assert mapping.changing == ("alpha",)
    assert build("sparsemax:temperature=learned:warmup=4").changing == ("alpha", "temperature")


def test_what_queries_are_multiplied_by_has_a_number_of_each_head():
    (spec,) = parse_mappings("softmax:temperature=2|fusedmax|entmax:temperature=learned|fusedmax")
    mapping = spec.build(4)
    assert mapping.score_scale().tolist() == [0.5, 1.0, 1.0, 1.0]
    mapping.keep_heads([2, 1])
    assert mapping.score_scale().tolist() == [1.0, 1.0]
    mapping.keep_heads([1])
    assert mapping.score_scale() is None
