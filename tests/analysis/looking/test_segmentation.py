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
    (note,) = cut("the cat sat").notes
    assert note == f"cut by --bpe sentencepiece --sentencepiece-model {folder}/spm/bpe.model"


@pytest.mark.parametrize("place", ["spm", "bpe", ".", "data-bin"])
def test_a_model_of_any_name_is_found_in_the_folders_beside_the_data(recipe, place):
    folder, made, _ = recipe
    (folder / place).mkdir(exist_ok=True)
    (folder / "spm" / "bpe.model").rename(folder / place / "model.model")
    cut = Segmentation(made, folder=str(folder / "data-bin"))
    (note,) = cut("the cat sat").notes
    assert note.endswith(str((folder / place / "model.model").relative_to(folder)))


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


SENTENCES = ["Is it great, or isn't it?", "Well-known (and good).", "A cat."]


def words_beside(folder, change=lambda text: text):
    """What a recipe leaves that cuts English into words by Moses."""
    sacremoses = pytest.importorskip("sacremoses")
    cut = sacremoses.MosesTokenizer(lang="en")
    for name in ("text", "tok", "data-bin"):
        (folder / name).mkdir()
    lines = [cut.tokenize(one, escape=False, return_str=True) for one in SENTENCES]
    (folder / "text" / "valid.input0").write_text("\n".join(SENTENCES) + "\n")
    (folder / "tok" / "valid.input0").write_text("\n".join(map(change, lines)) + "\n")
    return str(folder / "data-bin")


@pytest.mark.parametrize("change", [str, str.lower])
def test_a_recipe_s_words_are_cut_as_its_text_was(tmp_path, change):
    folder = words_beside(tmp_path, change)
    made = dictionary("It", "is", "great", ",", "is", "n't", "&")
    cut = Segmentation(made, folder=folder)("It is great, & quux")
    assert words_of(made, cut) == ["It", "is", "great", ",", "&", "<unk>", "</s>"]
    (note,) = cut.notes
    assert note.startswith("cut into words by --tokenizer moses --moses-no-dash-splits --moses-no-")
    assert cut.unknown == ["quux"]


def test_words_cut_in_another_way_are_pointed_out(tmp_path):
    folder = words_beside(tmp_path, lambda line: line.replace("n't", " n't").replace(".", " . |"))
    made = Segmentation(dictionary("great,"), folder=folder)("great,")
    assert made.unknown == []
    assert "was cut into words" in made.notes[0]
    assert "give such words" in made.notes[0]


def test_words_of_another_preparation_are_not_those_of_sentencepiece(recipe):
    folder, made, processor = recipe
    for name, line in (
        ("tok", "the cat ,"),
        ("spm", " ".join(processor.encode("the cat,", out_type=str))),
    ):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "valid.es").write_text(f"{line}\n", encoding="utf-8")
    cut = Segmentation(made, folder=str(folder / "data-bin"), language="es")("the cat,")
    assert len(cut.notes) == 1
    assert words_of(made, cut)[:-1] == [
        piece if made.index(piece) != made.unk() else "<unk>"
        for piece in processor.encode("the cat,", out_type=str)
    ]


def test_a_mark_of_subwords_in_a_sentence_does_not_leave_it_uncut(recipe):
    folder, made, processor = recipe
    cut = Segmentation(made, folder=str(folder / "data-bin"))
    for text in ("the cat \u2581 sat", "\u2581the cats sat on"):
        found = cut(text)
        expected = processor.encode(text, out_type=str)
        assert [one for one in words_of(made, found)[:-1] if one != "<unk>"] == [
            one for one in expected if made.index(one) != made.unk()
        ]
        assert "cut by --bpe sentencepiece" in found.notes[0]
    pieces = " ".join(processor.encode("the cat sat", out_type=str))
    found = cut(pieces)
    assert words_of(made, found)[:-1] == pieces.split()
    assert found.notes == ["taken as cut already, by the marks of subwords in it"]


def test_a_sentence_with_the_mark_of_merges_is_cut_too(tmp_path):
    pytest.importorskip("subword_nmt")
    (tmp_path / "codes").write_text("#version: 0.2\ng a\n")
    (tmp_path / "data-bin").mkdir()
    made = dictionary("ga@@", "to", "t@@", "o")
    cut = Segmentation(made, folder=str(tmp_path / "data-bin"))
    assert words_of(made, cut("gato x@@"))[:3] == ["ga@@", "t@@", "o"]
    assert words_of(made, cut("ga@@ to")) == ["ga@@", "to", "</s>"]


@pytest.mark.parametrize(
    ("symbols", "lower", "tokens", "notes"),
    [
        (("la", "luz"), None, ["la", "luz"], 1),
        (("la", "luz"), False, ["<unk>", "<unk>"], 0),
        (("la", "luz", "Dios"), None, ["<unk>", "<unk>"], 0),
        (("la", "luz", "Dios"), True, ["la", "luz"], 1),
        (("光", "12"), None, ["<unk>", "<unk>"], 0),
    ],
)
def test_capitals_become_small_where_the_dictionary_has_none(symbols, lower, tokens, notes):
    made = dictionary(*symbols, "madeupword0000")
    cut = Segmentation(made, lower=lower)("La LUZ")
    assert words_of(made, cut)[:-1] == tokens
    assert len(cut.notes) == notes
    assert all(note.startswith("lower-cased") for note in cut.notes)
    assert Segmentation(made, lower=lower)("la luz").notes == []


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_text_is_refused(text):
    with pytest.raises(ValueError, match="a text is empty"):
        Segmentation(dictionary("a"))(text)
