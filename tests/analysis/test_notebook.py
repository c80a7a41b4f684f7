"""Measures of a dictionary of weights, as in a notebook."""

import pytest
import torch

from fairseq_entmax.analysis import Annotations, measure, record_attention
from tests.support import batch, build_model, tiny_task


def chained(words):
    """A parse in which each word depends on the one before it, the first on none."""
    rows = [
        f"{n}\t{word}\t_\t{'NOUN' if n % 2 else 'VERB'}\t_\t_\t{n - 1}\t"
        f"{'root' if n == 1 else 'obj'}\t_\tNE={'B-PER' if n == 2 else 'O'}\n"
        for n, word in enumerate(words, start=1)
    ]
    return "".join(rows) + "\n"


def eye(*shape):
    return torch.eye(*shape)[None, None]


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ({}, "there is no attention to measure"),
        ({"self": {0: eye(3)}}, "'self' is not an attention"),
        ({"cross": {0: eye(3), 1: eye(3, 4)}}, "cross, layer 1, have the shape"),
        ({"cross": {0: torch.eye(3)}}, r"have the shape \(3, 3\)"),
        ({"cross": {0: eye(3) * 1.75}}, "are not probabilities"),
        ({"cross": {0: eye(3) * torch.nan}}, "are not probabilities"),
        ({"decoder-self": {0: torch.full((1, 1, 3, 3), 1 / 3)}}, "that a decoder has not read"),
        ({"cross": {0: torch.tensor([[[[1.5, -0.5, 0.0]] * 3]])}}, "are not probabilities"),
    ],
)
def test_invalid_attention_is_refused(attention, message):
    with pytest.raises(ValueError, match=message):
        measure(attention, batch([3], [3]), tiny_task())


def test_weights_on_padding_are_refused():
    attention, _ = record_attention(build_model(), batch([7, 5, 2], [6, 3, 4]))
    measure(attention, batch([7, 5, 2], [6, 3, 4]), tiny_task())
    with pytest.raises(ValueError, match="fall on padding in sentence 1: give the sample"):
        measure(attention, batch([7, 4, 2], [6, 3, 4]), tiny_task())


def test_annotations_add_their_measures(tmp_path):
    sample = batch([4, 4], [2, 2])
    words = tiny_task().source_dictionary
    tokens = dict(zip(sample["id"].tolist(), sample["net_input"]["src_tokens"], strict=True))
    texts = [[words[token] for token in tokens[number][:-1]] for number in sorted(tokens)]
    (tmp_path / "a.conllu").write_text("".join(map(chained, texts)))
    annotations = Annotations(str(tmp_path / "a.conllu"), words)
    # Every token attends to the previous one, its head; the first attends to itself
    before = torch.eye(4)[[0, 0, 1, 2]].repeat(2, 4, 1, 1)
    found = measure({"encoder-self": {0: before}}, sample, tiny_task(), annotations=annotations)
    head = found["encoder-self"][0]["heads"][1]
    assert head["dependencies"] == {"obj": {"to_head": 1.0, "to_dependent": 0.0}}
    # One of the four tokens attends to the second word
    assert head["named_entity"] == pytest.approx(1 / 4)
