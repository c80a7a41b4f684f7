"""Parses in CoNLL-U: what is read, what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairseq_entmax.analysis.annotations.conllu import ConlluFile, Token, Word

CONTRACTION = """\
# sent_id = 1
# text = Voy al mar
1	Voy	ir	VERB	_	_	0	root	_	_
2-3	al	_	_	_	_	_	_	_	_
2	a	a	ADP	_	_	4	case	_	_
3	el	el	DET	_	_	4	det	_	_
4	mar	mar	NOUN	_	_	1	obl:arg	_	NE=B-LOC|SpaceAfter=No
4.1	oculto	_	VERB	_	_	_	_	_	_

"""


def line(number: object = 1, form: str = "Sí", head: object = 0, **columns: str) -> str:
    """A line of one word."""
    upos, deprel, misc = (columns.get(name, "_") for name in ("upos", "deprel", "misc"))
    return f"{number}\t{form}\t_\t{upos}\t_\t_\t{head}\t{deprel}\t_\t{misc}\n"


def write(folder: Path, text: str | bytes) -> str:
    path = folder / "parses.conllu"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_words_have_form_tag_head_relation_and_entity(tmp_path: Path) -> None:
    words = ConlluFile(write(tmp_path, CONTRACTION))[0].words
    assert words == (
        Word("Voy", "VERB", 0, "root", None),
        Word("a", "ADP", 4, "case", None),
        Word("el", "DET", 4, "det", None),
        Word("mar", "NOUN", 1, "obl", "B-LOC"),
    )


def test_a_range_line_is_one_word_of_the_text(tmp_path: Path) -> None:
    tokens = ConlluFile(write(tmp_path, CONTRACTION))[0].tokens
    assert tokens == (
        Token("Voy", range(0, 1)),
        Token("al", range(1, 3)),
        Token("mar", range(3, 4)),
    )


def test_the_file_says_what_it_is_annotated_with(tmp_path: Path) -> None:
    full = ConlluFile(write(tmp_path, CONTRACTION))
    assert full.relations == ("case", "det", "obl", "root")
    assert full.parts_of_speech == ("ADP", "DET", "NOUN", "VERB")
    assert full.has_entities
    bare = ConlluFile(write(tmp_path, line(head="_")))
    assert bare.relations == bare.parts_of_speech == ()
    assert not bare.has_entities


@pytest.mark.parametrize("key", ["NE", "NER", "ner", "Entity"])
def test_each_key_of_named_entities_is_read(tmp_path: Path, key: str) -> None:
    file = ConlluFile(write(tmp_path, line(misc=f"SpaceAfter=No|{key}=S-PER")))
    assert file[0].words[0].entity == "S-PER"


@pytest.mark.parametrize("value", ["O", "_", ""])
def test_a_word_outside_of_entities_says_so(tmp_path: Path, value: str) -> None:
    file = ConlluFile(write(tmp_path, line(misc=f"NE={value}")))
    assert file[0].words[0].entity == "O"
    assert file.has_entities


def test_the_notation_of_coreference_is_no_named_entity(tmp_path: Path) -> None:
    assert not ConlluFile(write(tmp_path, line(misc="Entity=(1-person-new)"))).has_entities


def test_the_entity_of_a_range_is_that_of_its_words(tmp_path: Path) -> None:
    text = "1-2\tdel\t_\t_\t_\t_\t_\t_\t_\tner=B-LOC\n" + line(1, "de") + line(2, "el")
    words = ConlluFile(write(tmp_path, text))[0].words
    assert [word.entity for word in words] == ["B-LOC", "B-LOC"]


def test_sentences_are_read_in_any_order(tmp_path: Path) -> None:
    # Letters of several bytes, line ends of two kinds, blank lines beyond one, no last line end
    texts = [
        f"# {number} ñ\n" + line(1, f"é{number}") + "\n" * (number % 3) + "\n"
        for number in range(30)
    ]
    texts[7] = texts[7].replace("\n", "\r\n")
    file = ConlluFile(write(tmp_path, "".join(texts).rstrip("\n")))
    assert len(file) == 30
    for number in (29, 0, 7, 8, 13, 7):
        assert file[number].words[0].form == f"é{number}"


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    file = ConlluFile(write(tmp_path, b"\xef\xbb\xbf" + line(1, "Yo").encode()))
    assert file[0].words[0].form == "Yo"


@pytest.mark.parametrize(
    ("text", "number", "message"),
    [
        ("1\tYo\n", 1, "2 columns, but CoNLL-U has 10, separated by tabs: '1\\tYo'"),
        (line() + line(2).replace("\t", " "), 2, "1 columns, but CoNLL-U has 10"),
        ("# one\n" + line() + "\n" + line(1) + line(3), 5, "the column ID is '3' where 2 is next"),
        (line(head="x"), 1, "the column HEAD is 'x': a word's number, 0 or _ is expected"),
        (line(head=2), 1, "word 1 has the head 2 in a sentence of 1 words"),
        (line(1, head=1), 1, "word 1 has the head 1 in a sentence of 1 words"),
        (line() + line("1-2"), 2, "the range 1-2 does not begin at the next word, 2"),
        (line("2-1"), 1, "the range 2-1 does not begin at the next word, 1"),
        (line("1-3") + line(1), 2, "a sentence has no words, or not those of its last range"),
        ("# only a comment\n\n" + line(), 1, "a sentence has no words, or"),
    ],
)
def test_a_malformed_line_is_named_on_opening(
    tmp_path: Path, text: str, number: int, message: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(f"{path}, line {number}: {message}")):
        ConlluFile(path)


def test_a_file_without_a_sentence_or_in_another_encoding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--conllu file .* has no sentence"):
        ConlluFile(write(tmp_path, "\n\n"))
    with pytest.raises(ValueError, match=r"parses.conllu is not in UTF-8"):
        ConlluFile(write(tmp_path, b"1\t\xff\t_\t_\t_\t_\t_\t_\t_\t_\n"))
