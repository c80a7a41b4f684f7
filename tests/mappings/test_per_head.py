"""Layers whose heads have different mappings, compared with these mappings alone."""

import pytest
import torch

from fairseq_entmax.mappings import parse_mapping, parse_mappings
from tests.mappings.reference import attention_scores, random_rows

TEXTS = ["sparsemax", "softmax", "entmax:init=1.3", "fusedmax", "softmax", "sqpnormmax:p=learned"]
ENTMAX_ALONE = ["entmax:init=1.3", "softmax", "softmax", "sparsemax", "entmax:init=1.3"]


def build(texts, **options):
    (spec,) = parse_mappings("|".join(texts))
    return spec.build(len(texts), torch.Generator().manual_seed(0), **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_each_head_is_mapped_by_its_own_mapping(dtype):
    scores = attention_scores(len(TEXTS), dtype)
    probs = build(TEXTS).to(dtype)(scores)
    assert (probs.shape, probs.dtype) == (scores.shape, dtype)
    for head, text in enumerate(TEXTS):
        alone = parse_mapping(text).build(1).to(dtype)
        assert torch.equal(probs[:, head : head + 1], alone(scores[:, head : head + 1]))


def test_parameters_and_scores_get_the_gradients_of_their_heads_mapping():
    scores = attention_scores(len(TEXTS)).requires_grad_()
    grad = random_rows(2 * len(TEXTS) * 3, 9, 1.0, dtype=torch.float32).view(scores.shape)
    mapping = build(TEXTS)
    mapping(scores).backward(grad)
    for head, text in enumerate(TEXTS):
        alone = parse_mapping(text).build(1)
        own = scores.detach()[:, head : head + 1].requires_grad_()
        alone(own).backward(grad[:, head : head + 1])
        assert torch.equal(scores.grad[:, head : head + 1], own.grad)
        learned = dict(alone.named_parameters())
        part = mapping.parts[mapping.part_of[head]]
        for name, parameter in part.named_parameters():
            torch.testing.assert_close(parameter.grad, learned[name].grad)


def test_head_values_are_nan_where_a_heads_mapping_has_none():
    values = build(TEXTS).head_values()
    missing = {name: value.isnan().tolist() for name, value in values.items()}
    only_last = [True] * 5 + [False]
    assert missing == {
        "alpha": [False] * 5 + [True],
        "tv": [True, True, True, False, True, True],
        "p": only_last,
        "gamma": only_last,
    }
    assert values["alpha"][:5].tolist() == pytest.approx([2, 1, 1.3, 2, 1], abs=2e-7)
    assert {value.dtype for value in values.values()} == {torch.float64}
    assert build(TEXTS).learned == ("alpha", "p")
    assert list(build(TEXTS).state_dict()) == ["parts.2.alpha_logit", "parts.4.p_logit"]
    shared = build(["entmax", "softmax", "entmax"], defaults={"init": 1.5, "share": "layer"})
    assert shared.head_values()["alpha"].tolist() == [1.5, 1.0, 1.5]


@pytest.mark.parametrize("remaining", [[0, 2, 3], [5, 4, 2], [1, 4], [3]])
def test_the_remaining_heads_are_mapped_bitwise_as_before(remaining):
    scores = attention_scores(len(TEXTS))
    whole, cut = build(TEXTS), build(TEXTS)
    cut.keep_heads(remaining)
    assert torch.equal(cut(scores[:, remaining]), whole(scores)[:, remaining])
    again = build([TEXTS[head] for head in remaining]) if len(remaining) > 1 else cut.simplest()
    assert {k: v.shape for k, v in cut.simplest().state_dict().items()} == {
        k: v.shape for k, v in again.state_dict().items()
    }


def test_the_learned_alphas_of_the_remaining_heads_are_kept():
    mapping = build(["entmax", "softmax", "entmax", "entmax"], defaults={"init": "normal"})
    before = mapping.head_values()["alpha"]
    mapping.keep_heads([3, 1, 0])
    assert torch.equal(mapping.head_values()["alpha"], before[[3, 1, 0]])
    mapping.keep_heads([2, 0])
    assert torch.equal(mapping.simplest().alpha.double(), before[[0, 3]])


def test_heads_with_entmax_alone_become_one_entmax_with_an_epsilon_per_head():
    epsilon = build(ENTMAX_ALONE).epsilon()
    assert epsilon.tolist() == pytest.approx([0.3, 0, 0, 1, 0.3], abs=2e-7)
    assert build(["softmax", "sparsemax"]).half().epsilon().tolist() == [0.0, 1.0]
    for other in ("fusedmax", "sqpnormmax", "entmax:oscar=learned"):
        assert build(["softmax", other]).epsilon() is None
