"""The measures on a dictionary of weights."""

import pytest
import torch

from fairseq_entmax.analysis import Annotations, measure, record_attention
from tests.support import batch, build_model, spread_scores, tiny_task


def test_without_a_sample_the_lengths_say_what_is_padding():
    model = spread_scores(build_model(attn_mapping="entmax15"))
    sample = batch([7, 5, 2], [6, 3, 4])
    attention, _ = record_attention(model, sample)
    source, target = torch.tensor([7, 5, 2]), torch.tensor([6, 3, 4])
    given = measure(attention, source_lengths=source, target_lengths=target)
    expected = measure(attention, sample, tiny_task())
    for name, layers in expected.items():
        for layer, one in layers.items():
            assert given[name][layer]["diversity"] == pytest.approx(one["diversity"])
            for head, numbers in enumerate(one["heads"]):
                found = given[name][layer]["heads"][head]
                for key in ("density", "entropy", "confidence", "density_histogram", "offsets"):
                    assert found[key] == numbers[key], (name, key)
                assert found["rare_word"] is None


def eye(*shape):
    return torch.eye(*shape)[None, None]


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ({}, "there is no attention to measure"),
        ({"cross": {}}, "there is no attention to measure"),
        ({"self": {0: eye(2)}}, "'self' is no attention"),
        ({"cross": {0: eye(2, 3), 1: eye(2, 4)}}, "cross, layer 1, have the shape"),
        ({"cross": {0: torch.eye(3)}}, r"have the shape \(3, 3\)"),
        ({"cross": {0: eye(3) * 1.75}}, "are no probabilities"),
        ({"cross": {0: eye(3) * torch.nan}}, "are no probabilities"),
        ({"cross": {0: torch.tensor([[[[1.5, -0.5]]]])}}, "are no probabilities"),
    ],
)
def test_what_does_not_fit_is_refused(attention, message):
    with pytest.raises(ValueError, match=message):
        measure(attention)


@pytest.mark.parametrize("lengths", [[4, 3, 1], [4, 0], [5, 6]])
def test_lengths_that_do_not_fit_are_refused(lengths):
    weights = {"encoder-self": {0: torch.eye(5).expand(2, 1, 5, 5)}}
    with pytest.raises(ValueError, match=r"source_lengths got .* number from 1 to 5 for each of"):
        measure(weights, source_lengths=lengths)


def test_weights_on_padding_are_refused():
    attention, _ = record_attention(build_model(), batch([7, 5, 2], [6, 3, 4]))
    lengths = {"source_lengths": [7, 5, 2], "target_lengths": [6, 3, 4]}
    measure(attention, **lengths)
    with pytest.raises(ValueError, match="are on padding in sentence 0: give the sample"):
        measure(attention, **{**lengths, "source_lengths": [3, 5, 2]})
    with pytest.raises(ValueError, match="are on padding in sentence 1"):
        measure(attention, batch([7, 4, 2], [6, 3, 4]), tiny_task())


def test_a_decoder_that_sees_what_is_behind_is_refused():
    weights = torch.full((1, 1, 3, 3), 1 / 3)
    with pytest.raises(ValueError, match="or on tokens that a decoder has not read, in sentence 0"):
        measure({"decoder-self": {0: weights}})


def test_annotations_add_what_they_say_of_heads(tmp_path):
    sample = batch([4, 4], [2, 2])
    words = tiny_task().source_dictionary
    tokens = dict(zip(sample["id"].tolist(), sample["net_input"]["src_tokens"], strict=True))
    blocks = [
        "".join(
            f"{n}\t{words[token]}\t_\tNOUN\t_\t_\t{n - 1}\t{'obj' if n > 1 else 'root'}\t_\tNE=O\n"
            for n, token in enumerate(tokens[number].tolist()[:-1], start=1)
        )
        for number in sorted(tokens)
    ]
    (tmp_path / "a.conllu").write_text("\n".join(blocks))
    annotations = Annotations(str(tmp_path / "a.conllu"), words)
    # Every token looks at the one before it, which is its head, and the first at itself
    before = torch.eye(4)[[0, 0, 1, 2]].repeat(2, 4, 1, 1)
    found = measure({"encoder-self": {0: before}}, sample, tiny_task(), annotations=annotations)
    head = found["encoder-self"][0]["heads"][1]
    assert head["dependencies"] == {"obj": {"to_head": 1.0, "to_dependent": 0.0}}
    assert head["named_entity"] == 0
