"""Parses in CoNLL-U: what is read, and what is refused."""

import re

import pytest

from fairseq_entmax.analysis.data.annotations.conllu import ConlluFile, Token, Word

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


def line(number=1, form="Sí", head=0, misc="_", upos="_"):
    """A line with one word."""
    return f"{number}\t{form}\t_\t{upos}\t_\t_\t{head}\t_\t_\t{misc}\n"


@pytest.fixture
def opened(tmp_path):
    """A function that opens a file with the given text."""

    def opened(text):
        path = tmp_path / "parses.conllu"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return ConlluFile(str(path))

    return opened


def test_words_are_read_with_their_columns_and_a_range_is_one_token(opened):
    file = opened(CONTRACTION)
    assert file[0].words == (
        Word("Voy", "VERB", 0, "root", None),
        Word("a", "ADP", 4, "case", None),
        Word("el", "DET", 4, "det", None),
        Word("mar", "NOUN", 1, "obl", "B-LOC"),
    )
    places = [range(0, 1), range(1, 3), range(3, 4)]
    assert file[0].tokens == tuple(map(Token, ("Voy", "al", "mar"), places))
    assert file.relations == ("case", "det", "obl", "root")
    assert file.parts_of_speech == ("ADP", "DET", "NOUN", "VERB")
    assert file.has_entities
    bare = opened(line(head="_"))
    assert bare.relations == bare.parts_of_speech == ()
    assert not bare.has_entities


@pytest.mark.parametrize(
    ("misc", "entity"),
    [
        *((f"SpaceAfter=No|{key}=S-PER", "S-PER") for key in ("NE", "NER", "ner", "Entity")),
        *((f"NE={value}", "O") for value in ("O", "_", "")),
        ("Entity=(1-person-new)", None),  # coreference
    ],
)
def test_named_entities_are_read_under_their_usual_keys(opened, misc, entity):
    file = opened(line(misc=misc))
    assert file[0].words[0].entity == entity
    # The words of a range take its entity, unless they have their own
    words = line(1) + line(2) + line(3, misc="NE=LOC")
    of_range = opened(line("1-3", head="_", misc=misc) + words)
    assert [word.entity for word in of_range[0].words] == [entity, entity, "LOC"]
    assert file.has_entities == (entity is not None)


def test_sentences_are_read_in_any_order(opened):
    # Multibyte letters, two kinds of line end, extra blank lines, and no final line end
    texts = [
        f"# {number} ñ\n" + line(1, f"é{number}") + "\n" * (number % 3) + "\n"
        for number in range(30)
    ]
    texts[7] = texts[7].replace("\n", "\r\n")
    file = opened(b"\xef\xbb\xbf" + "".join(texts).rstrip("\n").encode())
    assert len(file) == 30
    for number in (29, 0, 7, 8, 13, 7):
        assert file[number].words[0].form == f"é{number}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\tYo\n", "line 1: 2 columns, but CoNLL-U has 10, separated by tabs: '1\\tYo'"),
        ("# one\n" + line() + "\n" + line(1) + line(3), "line 5: the column ID is '3', not 2"),
        (line(head="x"), "line 1: the column HEAD is 'x': a word's number, 0 or _ is expected"),
        (line(head=2), "line 1: word 1 has the head 2 in a sentence of 1 words"),
        (line(head=1), "line 1: word 1 has the head 1 in a sentence of 1 words"),
        (line() + line("1-2"), "line 2: the column ID is '1-2', not 2"),
        (line("1-2") + line() + line("2-3"), "line 3: the column ID is '2-3', not 2"),
        (line("1-0"), "line 1: the range 1-0 has no valid end"),
        (line("1-2") + line(), "line 2: a sentence has no words, or lacks words of its last range"),
        ("# only a comment\n\n" + line(), "line 1: a sentence has no words, or"),
    ],
)
def test_a_malformed_line_is_reported_on_opening(opened, text, message):
    with pytest.raises(ValueError, match=re.escape(f"parses.conllu, {message}")):
        opened(text)
    with pytest.raises(ValueError, match=r"--conllu file .* has no sentence"):
        opened("\n\n")
    with pytest.raises(ValueError, match=r"parses.conllu is not in UTF-8"):
        opened(b"1\t\xff\t_\t_\t_\t_\t_\t_\t_\t_\n")
