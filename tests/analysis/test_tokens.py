"""What is known of tokens: words, final punctuation, question words, ranks."""

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_entmax.analysis.data import tokens
from fairseq_entmax.analysis.data.tokens import TokenTable, final_punctuation, rarest


def dictionary(*symbols, counts=None):
    found = Dictionary()
    for place, symbol in enumerate(symbols):
        found.add_symbol(symbol, n=counts[place] if counts else 1)
    return found


def numbers(found, text):
    return torch.tensor([[found.index(symbol) for symbol in text.split()]])


def read(text, language=None):
    """The table of a text's own symbols, the text's tokens, and which of these are special."""
    found = dictionary(*dict.fromkeys(s for s in text.split() if s[0] != "<"))
    rows = numbers(found, text)
    return TokenTable.of(found, language), rows, (rows == found.pad()) | (rows == found.eos())


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("▁In ▁the ▁be gin ning </s>", tokens.SENTENCEPIECE, [1, 2, 3, 3, 3, -1]),
        ("▁ ¿ Qu é ▁es </s>", tokens.SENTENCEPIECE, [1, 1, 1, 1, 2, -1]),
        ("gin ning ▁the </s>", tokens.SENTENCEPIECE, [1, 1, 2, -1]),
        ("In the be@@ gin@@ ning . </s>", tokens.SUBWORD_NMT, [1, 2, 3, 3, 3, 4, -1]),
        ("In the beginning </s>", tokens.WORDS, [1, 2, 3, -1]),
        ("<pad> <pad> gin ▁the </s>", tokens.SENTENCEPIECE, [-1, -1, 3, 4, -1]),
        ("</s> gin ning ▁the <pad>", tokens.SENTENCEPIECE, [-1, 2, 2, 3, -1]),
        # An unknown token begins a word, or continues one that a lone mark begins
        ("▁a <unk> b </s>", tokens.SENTENCEPIECE, [1, 2, 2, -1]),
        ("▁ <unk> b ▁ ▁a <unk> </s>", tokens.SENTENCEPIECE, [1, 1, 1, 2, 3, 4, -1]),
    ],
)
def test_tokens_are_joined_to_words(text, kind, words):
    table, rows, special = read(text)
    assert table.kind == kind
    assert table.words(rows, special).tolist() == [words]


def test_a_mask_is_no_word_and_has_no_rank():
    found = dictionary("▁a", "b", "<mask>", counts=[2, 2, 1])
    table, rows = TokenTable.of(found), numbers(found, "▁a b <mask> b </s>")
    assert table.words(rows, rows == found.eos()).tolist() == [[1, 1, 2, 2, -1]]
    assert table.rank[rows].tolist() == [[0, 1, -1, 1, -1]]


@pytest.mark.parametrize(
    ("text", "place", "ending"),
    [
        ("▁Who ? </s>", 1, tokens.INTERROGATIVE),
        ("▁Who ?” </s>", 1, tokens.INTERROGATIVE),
        ("▁Who !? </s>", 1, tokens.INTERROGATIVE),
        ("▁誰 \uff1f </s>", 1, tokens.INTERROGATIVE),
        ("▁I . </s>", 1, tokens.DECLARATIVE),
        ("▁I . ' ) </s>", 1, tokens.DECLARATIVE),
        ("▁I ! </s>", 1, tokens.NEITHER),
        ("▁Who ? ▁I </s>", 2, tokens.NEITHER),
        ("<pad> <pad> ▁I . </s>", 3, tokens.DECLARATIVE),
        ("</s>", 0, tokens.NEITHER),
    ],
)
def test_the_final_punctuation_of_a_sentence_is_found(text, place, ending):
    where, what = final_punctuation(*read(text))
    assert (where.tolist(), what.tolist()) == ([place], [ending])


@pytest.mark.parametrize(
    ("language", "text", "asking"),
    [
        ("es", "▁¿ Qu é ▁es ? ▁que ▁quién </s>", [0, 1, 1, 0, 0, 0, 1, 0]),
        ("es", "▁¿Por ▁qu é ga </s>", [0, 0, 0, 0, 0]),
        ("en", "<pad> ▁“ Who ’ s ▁who ever </s>", [0, 0, 1, 0, 1, 0, 0, 0]),
        ("de", "wa@@ s ist wa@@ r </s>", [1, 1, 0, 0, 0, 0]),
        ("xx", "▁¿ Qu é </s>", None),
    ],
)
def test_question_words_are_found_by_the_languages_list(language, text, asking):
    table, rows, special = read(text, language)
    which = table.interrogative(rows, table.words(rows, special))
    assert (which if which is None else which.int().tolist()[0]) == asking


@pytest.mark.parametrize(("language", "ending"), [("el", 1), ("en", 0), (None, 0)])
def test_a_semicolon_is_a_question_mark_only_in_greek(language, ending):
    table = TokenTable.of(dictionary(";"), language)
    assert table.ending[-1] == ending


def test_ranks_follow_the_dictionarys_counts_and_skip_special_symbols():
    found = dictionary("a", "b", "c", counts=[5, 9, 7])
    rank = TokenTable.of(found).rank
    assert [int(rank[found.index(s)]) for s in ("b", "c", "a")] == [0, 1, 2]
    assert rank[: found.nspecial].tolist() == [-1] * found.nspecial


@pytest.mark.parametrize(
    ("text", "first", "two", "rank"),
    [
        ("a c b </s>", [0, 1, 0, 0], [0, 1, 1, 0], 2),
        ("a a </s>", [1, 1, 0], [1, 1, 0], 0),
        ("<pad> </s>", [1, 1], [1, 1], -1),  # measures leave out such a sentence
    ],
)
def test_the_rarest_tokens_are_found(text, first, two, rank):
    found = dictionary("a", "b", "c")
    ranks = TokenTable.of(found).rank[numbers(found, text)]
    masks = [(ranks >= least).int().tolist() for least in rarest(ranks)]
    assert (masks, rarest(ranks)[0].tolist()) == ([[first], [two]], [[rank]])
