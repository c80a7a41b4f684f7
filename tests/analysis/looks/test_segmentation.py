"""How texts are cut into tokens."""

import io
from argparse import Namespace
from types import SimpleNamespace

import pytest

from fairseq_entmax.analysis.looks.segmentation import Segmentation, built
from tests.analysis.test_tokens import dictionary

TEXT = ["the cat sat on the mat", "a cat and a mat and a hat", "the hat sat on a cat"] * 20


def words_of(made, segmented):
    return [made[token] for token in segmented.tokens.tolist()]


@pytest.mark.parametrize("place", ["spm", "bpe", "data-bin"])
def test_a_subword_model_beside_the_data_is_used_and_named(tmp_path, place):
    sentencepiece = pytest.importorskip("sentencepiece")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=written, model_type="bpe", vocab_size=30,
        minloglevel=2,
    )  # fmt: skip
    (tmp_path / place).mkdir()
    path = tmp_path / place / "any.model"
    path.write_bytes(written.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    pieces = [processor.IdToPiece(number) for number in range(3, processor.GetPieceSize())]
    made = dictionary(*pieces)
    cut = Segmentation(made, data=str(tmp_path / "data-bin"))
    expected = processor.encode("the cat sat", out_type=str)
    assert words_of(made, cut("the cat sat")) == [*expected, "</s>"]
    (note,) = cut("the cat sat").notes
    assert note == f"segmented by --bpe sentencepiece --sentencepiece-model {path}"
    already = cut(" ".join(expected))
    assert words_of(made, already)[:-1] == expected
    assert already.notes == ["has subword marks, so it is taken as already segmented"]


def test_merges_of_the_language_take_precedence(tmp_path):
    pytest.importorskip("subword_nmt")
    (tmp_path / "bpe").mkdir()
    (tmp_path / "bpe" / "codes.es").write_text("#version: 0.2\ng a\n")
    (tmp_path / "bpe" / "codes").write_text("#version: 0.2\nt o</w>\n")
    made = dictionary("ga@@", "to", "g@@", "a@@", "t@@", "o")
    data = str(tmp_path / "data-bin")
    es, en = (Segmentation(made, data=data, language=one)("gato") for one in ("es", "en"))
    assert words_of(made, es) == ["ga@@", "t@@", "o", "</s>"]
    assert words_of(made, en) == ["g@@", "a@@", "to", "</s>"]


def test_a_file_without_merges_is_refused_in_one_sentence(tmp_path):
    pytest.importorskip("subword_nmt")
    (tmp_path / "codes").write_text("#version: 0.2\nno merge of two\n")
    options = Namespace(bpe="subword_nmt", bpe_codes=str(tmp_path / "codes"))
    with pytest.raises(ValueError, match=r"cannot be used with .*codes: Error: invalid line 2 in "):
        built(options, "bpe")


def test_words_outside_the_dictionary_are_reported():
    cut = Segmentation(dictionary("a", "b"))
    made = cut("a quux b quux frob")
    assert made.tokens.tolist() == [4, 3, 5, 3, 3, 2]
    assert made.notes == ["not in the dictionary, so read as <unk>: quux, frob"]
    assert cut("a b").notes == []


def test_a_mask_of_a_masked_language_model_stays_one_token():
    made = dictionary("▁a", "▁b", "<mask>")
    # Some encoders make a token of a space at the end
    pieces = SimpleNamespace(encode=lambda text: " ▁".join(["", *text.lstrip().split(" ")]))
    cut = Segmentation(made, bpe=pieces, lower=True)("A <mask> b")
    assert words_of(made, cut) == ["▁a", "<mask>", "▁b", "</s>"]
