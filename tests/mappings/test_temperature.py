"""The temperature of a mapping: it divides the scores, can be learned, and 1 changes nothing."""

from functools import partial

import pytest
import torch

from fairseq_entmax.mappings import parse_mapping
from tests.mappings.reference import attention_scores

scores = partial(attention_scores, dtype=torch.float64)


def build(text):
    return parse_mapping(text).build(4).double()


@pytest.mark.parametrize("text", ["softmax", "entmax:init=1.3", "fusedmax", "sqpnormmax"])
def test_scores_are_divided_by_the_temperature_and_1_is_skipped(text):
    plain = build(text)
    for how in ("=3", "=learned:temperature_init=3", "=learned:temperature_init=3:share=layer"):
        mapping = build(f"{text}:temperature{how}")
        torch.testing.assert_close(mapping(scores()), plain(scores() / 3), atol=1e-7, rtol=0)
        found = mapping.head_values()["temperature"].tolist()
        assert found == pytest.approx([3.0] * len(found), abs=1e-6)
        assert ("temperature" in mapping.learned) is ("learned" in how)
    mapping = build(f"{text}:temperature=1")
    assert mapping.scaled(given := scores()) is given
    assert mapping.head_values().keys() == plain.head_values().keys()
    assert torch.equal(build(f"{text}:temperature=learned")(given), plain(given))


def test_the_temperature_equals_sqpnormmaxs_gamma_and_acts_from_the_first_update():
    hot, other = build("sqpnormmax:temperature=2"), build("sqpnormmax:gamma=2")
    torch.testing.assert_close(hot(scores()), other(scores()), atol=1e-9, rtol=0)
    rising = build("sparsemax:temperature=2:warmup=4")
    torch.testing.assert_close(rising(scores()), (scores() / 2).softmax(-1).nan_to_num())
    assert rising.changing == ("alpha",)
