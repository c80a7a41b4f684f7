"""How texts become tokens."""

import io

import pytest
from fairseq.data import Dictionary

from fairseq_entmax.analysis.looking.segmentation import Segmentation, unknown_said
from tests.support import marked_task

TEXT = ["the cat sat on the mat", "a cat and a mat and a hat", "the hat sat on a cat"] * 20


def dictionary(*symbols):
    made = Dictionary()
    for symbol in symbols:
        made.add_symbol(symbol)
    return made


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A sentencepiece model of a small text."""
    sentencepiece = pytest.importorskip("sentencepiece")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=written, model_type="bpe", vocab_size=30,
        minloglevel=2,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("spm") / "bpe.model"
    path.write_bytes(written.getvalue())
    return path


@pytest.fixture
def recipe(model, tmp_path):
    """A recipe's folder: ``spm/bpe.model`` beside ``data-bin``, and the dictionary of its pieces."""
    import sentencepiece

    (tmp_path / "spm").mkdir()
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "spm" / "bpe.model").write_bytes(model.read_bytes())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    pieces = [processor.IdToPiece(number) for number in range(3, processor.GetPieceSize())]
    return tmp_path, dictionary(*pieces), processor


def words_of(made, segmented):
    return [made[token] for token in segmented.tokens.tolist()]


def test_the_model_of_a_recipe_is_found_beside_the_data(recipe):
    folder, made, processor = recipe
    cut = Segmentation(made, folder=str(folder / "data-bin"))
    assert words_of(made, cut("the cat sat")) == [
        *processor.encode("the cat sat", out_type=str),
        "</s>",
    ]
    assert f"--sentencepiece-model {folder}/spm/bpe.model" in cut.said


@pytest.mark.parametrize("place", ["spm", "bpe", ".", "data-bin"])
def test_a_model_of_any_name_is_found_in_the_folders_beside_the_data(recipe, place):
    folder, made, _ = recipe
    (folder / place).mkdir(exist_ok=True)
    (folder / "spm" / "bpe.model").rename(folder / place / "model.model")
    cut = Segmentation(made, folder=str(folder / "data-bin"))
    assert cut.said.endswith(str((folder / place / "model.model").relative_to(folder)))


def test_a_model_of_other_pieces_is_not_taken(recipe):
    folder, _, _ = recipe
    cut = Segmentation(dictionary("▁gato", "s"), folder=str(folder / "data-bin"))
    with pytest.raises(ValueError, match="give --bpe sentencepiece --sentencepiece-model FILE"):
        cut("gatos")


def test_a_text_that_is_cut_already_stays_as_it_is():
    made = dictionary("▁gato", "s")
    cut = Segmentation(made)
    assert words_of(made, cut("▁gato s")) == ["▁gato", "s", "</s>"]
    with pytest.raises(ValueError, match="or a text that is cut already"):
        cut("gatos")


def test_merges_are_found_those_of_the_language_first(tmp_path):
    pytest.importorskip("subword_nmt")
    (tmp_path / "bpe").mkdir()
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "bpe" / "codes.es").write_text("#version: 0.2\ng a\n")
    (tmp_path / "bpe" / "codes.en").write_text("#version: 0.2\nt o</w>\n")
    made = dictionary("ga@@", "to", "g@@", "a@@", "t@@", "o")
    found = {
        language: Segmentation(made, folder=str(tmp_path / "data-bin"), language=language)
        for language in ("es", "en")
    }
    assert words_of(made, found["es"]("gato")) == ["ga@@", "t@@", "o", "</s>"]
    assert words_of(made, found["en"]("gato")) == ["g@@", "a@@", "to", "</s>"]


def test_words_that_the_dictionary_lacks_are_said():
    cut = Segmentation(dictionary("a", "b"))
    made = cut("a quux b quux frob")
    assert made.tokens.tolist() == [4, 3, 5, 3, 3, 2]
    assert unknown_said([made]) == ["not in the dictionary, and read as <unk>: quux, frob"]
    assert unknown_said([cut("a b")]) == []


def test_words_outside_a_vocabulary_with_markers_become_these():
    made = Segmentation(marked_task().source_dictionary)("w1 quux w2 frob quux")
    assert words_of(marked_task().source_dictionary, made) == [
        *("w1", "<unk-0>", "w2", "<unk-1>", "<unk-0>", "</s>")
    ]
    assert unknown_said([made]) == ["<unk-0> is quux, <unk-1> is frob"]


def test_words_cut_by_a_tokenizer_are_pointed_out(tmp_path):
    (tmp_path / "tok").mkdir()
    cut = Segmentation(dictionary("a"), folder=str(tmp_path / "data-bin"))
    assert "was cut into words" in cut.said
    assert "--tokenizer moses" in cut.said


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_text_is_refused(text):
    with pytest.raises(ValueError, match="a text is empty"):
        Segmentation(dictionary("a"))(text)
