"""Tokens joined to words."""

import pytest
import torch

from fairseq_entmax.analysis.looking.words import groups_of, joined_tokens, joined_weights


def test_tokens_of_one_word_are_one_group_and_others_stay_alone():
    assert groups_of([1, 1, 2, -1, -1, 3]) == [[0, 1], [2], [3], [4], [5]]
    assert groups_of([]) == []


@pytest.mark.parametrize(
    ("tokens", "groups", "words"),
    [
        (["▁princip", "io", "▁y", "</s>"], [[0, 1], [2], [3]], ["principio", "y", "</s>"]),
        (["prin@@", "cipio", "▁"], [[0, 1], [2]], ["principio", "▁"]),
    ],
)
def test_words_lose_the_marks_of_their_parts(tokens, groups, words):
    assert joined_tokens(tokens, groups) == words


def test_weights_are_summed_over_keys_and_meaned_over_queries():
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(2, 5, 4, generator=generator)
    weights[:, :, 2] = 0
    weights = weights / weights.sum(-1, keepdim=True)
    queries, keys = [[0], [1, 2, 3], [4]], [[0, 1], [2], [3]]
    joined = joined_weights(weights, queries, keys)
    for head in range(2):
        for row, own in enumerate(queries):
            for column, others in enumerate(keys):
                by_hand = sum(float(weights[head, q, k]) for q in own for k in others) / len(own)
                assert float(joined[head, row, column]) == pytest.approx(by_hand, abs=1e-6)
    assert torch.allclose(joined.sum(-1), torch.ones(2, 3))
    assert joined[:, :, 1].eq(0).all()
