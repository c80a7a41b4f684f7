"""Measures of a dictionary of weights, as in a notebook."""

import pytest
import torch

from fairseq_entmax.analysis import Annotations, measure, record_attention
from tests.support import batch, build_model, spread_scores, tiny_task


def test_lengths_replace_a_sample_in_marking_padding():
    model = spread_scores(build_model(attn_mapping="entmax15"))
    sample = batch([7, 5, 2], [6, 3, 4])
    attention, _ = record_attention(model, sample)
    source, target = torch.tensor([7, 5, 2]), torch.tensor([6, 3, 4])
    given = measure(attention, source_lengths=source, target_lengths=target)
    expected = measure(attention, sample, tiny_task())
    for name, layers in expected.items():
        for layer, one in layers.items():
            assert given[name][layer]["diversity"] == pytest.approx(one["diversity"])
            for found, numbers in zip(given[name][layer]["heads"], one["heads"], strict=True):
                for key in ("density", "entropy", "confidence", "density_histogram", "offsets"):
                    assert found[key] == numbers[key], (name, key)


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
        ({"self": {0: eye(2)}}, "'self' is not an attention"),
        ({"cross": {0: eye(2, 3), 1: eye(2, 4)}}, "cross, layer 1, have the shape"),
        ({"cross": {0: torch.eye(3)}}, r"have the shape \(3, 3\)"),
        ({"cross": {0: eye(3) * 1.75}}, "are not probabilities"),
        ({"cross": {0: eye(3) * torch.nan}}, "are not probabilities"),
        ({"decoder-self": {0: torch.full((1, 1, 3, 3), 1 / 3)}}, "that a decoder has not read"),
        ({"cross": {0: torch.tensor([[[[1.5, -0.5]]]])}}, "are not probabilities"),
    ],
)
def test_invalid_attention_is_refused(attention, message):
    with pytest.raises(ValueError, match=message):
        measure(attention)


def test_weights_on_padding_are_refused():
    attention, _ = record_attention(build_model(), batch([7, 5, 2], [6, 3, 4]))
    lengths = {"source_lengths": [7, 5, 2], "target_lengths": [6, 3, 4]}
    measure(attention, **lengths)
    with pytest.raises(ValueError, match="fall on padding in sentence 0: give the sample"):
        measure(attention, **{**lengths, "source_lengths": [3, 5, 2]})
    with pytest.raises(ValueError, match="fall on padding in sentence 1"):
        measure(attention, batch([7, 4, 2], [6, 3, 4]), tiny_task())
    for source in ([7, 5], [7, 0, 2], [8, 5, 2]):
        with pytest.raises(ValueError, match=r"source_lengths got .* from 1 to 7 for each of"):
            measure(attention, **{**lengths, "source_lengths": source})


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
