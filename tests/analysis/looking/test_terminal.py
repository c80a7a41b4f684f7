"""A look as text."""

import pytest
import torch

from fairseq_entmax.analysis.looking.sentence import Classified, Look
from fairseq_entmax.analysis.looking.terminal import WIDTH, _width, shown, weight_text

SOURCE = ["▁En", "▁el", "▁extraordinariamentelargo", "東京東京東京東京東京東京", "</s>"]
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
    assert first.split() == ["▁In", "0.50", "▁En", "0.25", "▁el", "0.25", *first.split()[6:]]
    assert first.endswith("2 of 5 exactly 0")
    assert second.split()[1:3] == ["1.00", "</s>"]
    assert second.endswith("4 of 5 exactly 0")
    assert third.split()[3:5] == ["<.01", "▁el"]


def test_a_weight_of_zero_is_never_shown_as_a_link():
    (link, only, _) = look().links(layer=0)
    assert [token for token, _ in link.keys] == SOURCE[:3]
    assert only.keys == [("</s>", 1.0)]


@pytest.mark.parametrize("top", [1, 3, 7, 40])
def test_it_has_eighty_columns_whatever_the_tokens(top):
    lines = shown(look(text="a word and " * 30), top=top).splitlines()
    assert all(_width(line) <= WIDTH for line in lines)


@pytest.mark.parametrize(
    ("weight", "text"),
    [(0, "   0"), (1e-7, "<.01"), (0.0049, "<.01"), (0.005, "0.01"), (1, "1.00")],
)
def test_only_zero_looks_like_zero(weight, text):
    assert weight_text(weight) == text


def test_the_mean_leaves_out_closed_heads_and_says_so():
    own = look()
    expected = own.attention["cross"][0][0]
    assert torch.equal(own.weights(), expected)
    assert "mean of 2 heads in 2 layers, without 1 whose gate is closed" in shown(own)
    closed = own.weights(layer=2, head=1)
    assert torch.equal(closed, expected.flip(0))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"attention": "encoder-self"}, "'encoder-self': this model has cross"),
        ({"layer": 3}, "--layer got 3: cross has the layers 0 to 2"),
        ({"layer": 1}, "no heads left in cross"),
        ({"head": 2}, "--head got 2: cross has the heads 0 to 1"),
        ({"layer": 0, "head": 1}, "layer 0 of cross has the heads 0 to 0"),
        ({"top": 0}, "top got 0"),
    ],
)
def test_what_is_not_there_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        look().links(**asked)


def test_a_classifier_shows_what_pools():
    pooling = {"pooling": torch.tensor([[0.75, 0, 0, 0, 0.25], [0.25, 0, 0, 0, 0.75]])}
    visible = {"pooling": torch.tensor([True, True, True, False, True])}
    own = look(
        translation=None,
        attention={"encoder-self": [torch.eye(5)[None]]},
        gates={"encoder-self": [[1.0]]},
        classified=Classified("old", 0.9, pooling, visible),
    )
    text = shown(own)
    assert "says: old (0.90)" in text
    assert "pooling, mean of 2 heads, 2 of 4 tokens exactly 0:\n  0.50 ▁En\n  0.50 </s>" in text
    assert "0.75 ▁En" in shown(own, head=0)
    assert "encoder-self, mean of 1 head in 1 layer" in shown(own, attention="encoder-self")


def test_of_a_mean_it_is_said_how_many_heads_leave_out_keys():
    sparse = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    heads = torch.stack([sparse, torch.full((2, 4), 0.25)])
    own = look(
        tokens=["a", "b", "a", "</s>"],
        target_tokens=["x", "</s>"],
        attention={"cross": [heads]},
        gates={"cross": [[1.0, 1.0]]},
    )
    text = " ".join(shown(own).split())
    assert "of 2 heads 1 leaves out keys, with weights of exactly 0; mean density 0.69" in text
    assert "no zeros" not in text
    assert "mean density" not in shown(own, layer=0, head=1)
    assert "no zeros" in shown(own, layer=0, head=1)


def test_a_word_that_is_there_twice_has_its_places():
    weights = torch.tensor([[[0.5, 0.1, 0.4, 0.0], [0.5, 0.5, 0.0, 0.0]]])
    own = look(
        tokens=["a", "b", "a", "</s>"],
        target_tokens=["x", "</s>"],
        attention={"cross": [weights]},
        gates={"cross": [[1.0]]},
    )
    first, second = shown(own).splitlines()[-2:]
    assert first.split()[1:7] == ["0.50", "a#0", "0.40", "a#2", "0.10", "b"]
    assert second.split()[1:5] == ["0.50", "a#0", "0.50", "b"]
