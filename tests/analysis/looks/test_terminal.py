"""A look as text, and with tokens joined to words."""

import pytest
import torch

from fairseq_entmax.analysis.looks.look import Look
from fairseq_entmax.analysis.looks.sentence import groups_of, joined_tokens, joined_weights
from fairseq_entmax.analysis.looks.terminal import shown, weight_text

SOURCE = ["▁En", "▁el", "▁extraordinario", "東京", "</s>"]
TARGET = ["▁In", "▁the", "</s>"]


def look(**changes):
    cross = torch.tensor([[[0.5, 0.25, 0.25, 0, 0], [0, 0, 0, 0, 1], [0.996, 0.004, 0, 0, 0]]])
    fields = {
        "text": "En el …",
        "translation": "In the",
        "is_generated": True,
        "tokens": SOURCE,
        "read_tokens": ["</s>", *TARGET[:-1]],
        "target_tokens": TARGET,
        "attention": {"cross": [cross, torch.zeros(0, 3, 5), torch.cat([cross, cross.flip(1)])]},
        "gates": {"cross": [[1.0], [], [1.0, 0.0]]},
    }
    return Look(**{**fields, **changes})


def test_the_strongest_links_come_first_and_zeros_are_counted():
    text = shown(look(), layer=0, head=0)
    assert "cross, layer 0, head 0:" in text
    first, second, third = text.splitlines()[-3:]
    assert first.split()[:7] == ["▁In", "0.50", "▁En", "0.25", "▁el", "0.25", "▁extraordinario"]
    assert first.endswith("2 of 5 exactly 0")
    assert second.split()[1:3] == ["1.00", "</s>"]
    assert second.endswith("4 of 5 exactly 0")
    assert third.split()[3:5] == ["<.01", "▁el"]
    _, only, _ = look().links(layer=0)
    assert only.keys == [("</s>", 1.0)]
    # Only zero is printed as zero
    written = [weight_text(weight) for weight in (0, 1e-7, 0.0049, 0.005, 1)]
    assert written == ["   0", "<.01", "<.01", "0.01", "1.00"]


def test_the_mean_leaves_out_closed_heads_and_says_so():
    own = look()
    expected = own.attention["cross"][0][0]
    assert torch.equal(own.weights(), expected)
    assert "mean of 2 heads in 2 layers, without 1 with a closed gate" in shown(own)
    # Only the top layer has a head 1
    assert "cross, head 1, mean of 1 head in 1 layer:" in shown(own, head=1)
    assert torch.equal(own.weights(layer=2, head=1), expected.flip(0))
    assert "cross, layer 2, mean of 1 head, without 1 with a closed gate:" in shown(own, layer=2)


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"attention": "encoder-self"}, "'encoder-self': this model has cross"),
        ({"layer": 3}, "--layer got 3: cross has layers 0 to 2"),
        ({"head": 2}, "--head got 2: cross has heads 0 to 1"),
        ({"top": 0}, "--top got 0"),
    ],
)
def test_unknown_attentions_layers_and_heads_are_refused(requested, message):
    with pytest.raises(ValueError, match=message):
        look().links(**requested)


def test_a_mean_says_how_many_heads_leave_out_keys():
    sparse = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    own = look(
        tokens=["a", "b", "a", "</s>"],
        target_tokens=["x", "</s>"],
        attention={"cross": [torch.stack([sparse, torch.full((2, 4), 0.25)])]},
        gates={"cross": [[1.0, 1.0]]},
    )
    text = " ".join(shown(own).split())
    assert "1 of 2 heads gives some keys a weight of exactly 0; mean density 0.69" in text
    assert "no zeros" not in text
    assert "no zeros" in shown(own, layer=0, head=1)
    # A word that occurs twice is numbered by position
    assert shown(own, layer=0, head=0).splitlines()[-2].split()[1:5] == ["0.50", "a#0", "0.50", "b"]
    # Later tokens, which a decoder has not read, are not left out by choice
    causal = torch.tensor([[1.0, 0.0], [0.5, 0.5]]).expand(2, 2, 2)
    changes = {"attention": {"decoder-self": [causal]}, "gates": {"decoder-self": [[1.0, 1.0]]}}
    text = " ".join(shown(look(read_tokens=["</s>", "x"], **changes)).split())
    assert "none of 2 heads give some keys a weight of exactly 0; mean density 1.00" in text


def test_word_weights_are_summed_over_keys_and_averaged_over_queries():
    assert groups_of([1, 1, 2, -1, -1, 3]) == [[0, 1], [2], [3], [4], [5]]
    joined = joined_tokens(["▁pr", "io", "x@@", "y", "▁"], [[0, 1], [2, 3], [4]])
    assert joined == ["prio", "xy", "▁"]
    weights = torch.rand(2, 5, 4, generator=torch.Generator().manual_seed(1))
    weights[:, :, 2] = 0
    queries, keys = [[0], [1, 2, 3], [4]], [[0, 1], [2], [3]]
    joined = joined_weights(weights, queries, keys)
    for head in range(2):
        for row, own in enumerate(queries):
            for column, others in enumerate(keys):
                by_hand = sum(float(weights[head, q, k]) for q in own for k in others) / len(own)
                assert float(joined[head, row, column]) == pytest.approx(by_hand, abs=1e-6)
    assert joined[:, :, 1].eq(0).all()
