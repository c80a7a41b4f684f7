"""Markers: who gets which, and what is refused, against a brute force of the definition."""

import io
import random
from collections import Counter

import pytest
from fairseq.data import Dictionary

from fairseq_entmax.summaries import oov
from fairseq_entmax.summaries.oov import Vocabulary, mark, read_vocabulary, vocabulary_lines
from tests.summaries.texts import written

KNOWN = frozenset({*oov.SPECIAL, "the", "cat", "sat"})


def brute_force(source, target, known, markers):
    """The definition, word by word, by looking back over the whole source each time."""

    def number(word):
        seen = []
        for other in source:
            if other not in known and other not in seen:
                seen.append(other)
        return seen.index(word) if word in seen else None

    def marked(word):
        place = number(word)
        if word in known or place is None or place >= markers:
            return word
        return f"<unk-{place}>"

    return [marked(word) for word in source], [marked(word) for word in target]


def marked(tmp_path, vocabulary, source, target, **cuts):
    paths = written(tmp_path, source=source, target=target)
    outputs = [io.BytesIO(), io.BytesIO()]
    counts = mark(vocabulary, paths["source"], paths["target"], outputs, **cuts)
    return *(output.getvalue().decode() for output in outputs), counts


def test_a_small_text_by_hand(tmp_path):
    source, target, counts = marked(
        tmp_path,
        Vocabulary(KNOWN, 2),
        "the zebra met the okapi and zebra sat\nthe cat sat\n",
        "okapi met zebra zoo\nzebra cat\n",
    )
    # zebra 0, met 1, and okapi would be 2
    assert source == "the <unk-0> <unk-1> the okapi and <unk-0> sat\nthe cat sat\n"
    assert target == "okapi <unk-1> <unk-0> zoo\nzebra cat\n"
    assert vars(counts) == {
        "sentences": 2,
        "source_words": 11,
        "source_unknown": 5,
        "source_marked": 3,
        "target_words": 6,
        "target_unknown": 5,
        "target_marked": 2,
    }


@pytest.mark.parametrize("seed", range(5))
def test_random_texts_are_marked_as_the_definition_says(tmp_path, seed):
    random_words = random.Random(seed)
    words = [*sorted(KNOWN), *(f"new{n}" for n in range(8))]
    pairs = [
        [random_words.choices(words, k=random_words.randrange(12)) for _ in range(2)]
        for _ in range(40)
    ]
    texts = ["".join(f"{' '.join(pair[side])}\n" for pair in pairs) for side in range(2)]
    *outputs, _ = marked(tmp_path, Vocabulary(KNOWN, 3), *texts)
    expected = [brute_force(*pair, KNOWN, 3) for pair in pairs]
    for side, output in enumerate(outputs):
        assert [line.split() for line in output.splitlines()] == [pair[side] for pair in expected]


def test_cutting_a_source_never_renumbers_and_takes_its_words_from_the_target(tmp_path):
    texts = "zebra the okapi emu zebra\n", "emu okapi zebra the\n"
    whole, _, _ = marked(tmp_path, Vocabulary(KNOWN, 9), *texts)
    for length in range(1, 6):
        source, target, _ = marked(
            tmp_path, Vocabulary(KNOWN, 9), *texts, cut_source=length, cut_target=3
        )
        assert source.split() == whole.split()[:length]
        copied = {word for word in target.split() if word.startswith("<unk-")}
        assert copied == set(source.split()) - KNOWN
        assert len(target.split()) == 3


def test_fairseqs_unknown_word_is_a_word_and_no_marker(tmp_path):
    source, target, _ = marked(
        tmp_path, Vocabulary(KNOWN, 2), "<unk> zebra <unk>\n", "<unk> zebra\n"
    )
    assert (source, target) == ("<unk> <unk-0> <unk>\n", "<unk> <unk-0>\n")


def test_the_dictionary_is_read_by_fairseq_with_the_markers_last(tmp_path):
    counts = Counter({"b": 2, "a": 2, "c": 9, "rare": 1})
    lines = list(vocabulary_lines(counts, 3, 2))
    assert lines == ["c 9\n", "a 2\n", "b 2\n", "<unk-0> 0\n", "<unk-1> 0\n"]
    path = written(tmp_path, dict="".join(lines))["dict"]
    dictionary = Dictionary.load(path)
    assert dictionary.symbols[-2:] == ["<unk-0>", "<unk-1>"]
    assert len(dictionary) == 4 + 3 + 2
    assert read_vocabulary(path) == Vocabulary(oov.SPECIAL | {"a", "b", "c"}, 2)


def test_fairseqs_special_words_are_not_counted(tmp_path):
    path = written(tmp_path, text="<unk> a <s> b </s>\n<pad> a\n")["text"]
    assert oov.count_words([path, path]) == {"a": 4, "b": 2}


@pytest.mark.parametrize(
    ("dictionary", "message"),
    [
        ("a 1\nb 1\n", "has no markers <unk-0>, <unk-1>, …: make it with"),
        ("", "has no markers"),
        ("a 1\n<unk-0> 0\nb 1\n", "line 3 has b where <unk-1> or the end should be"),
        ("a 1\n<unk-1> 0\n", "line 2 has <unk-1> where <unk-0>"),
        ("<unk-0> 0\n<unk-0> 0\n", "line 2 has <unk-0> where <unk-1>"),
        ("<unk-0> 0\nmadeupword0000 0\n", "line 2 has madeupword0000 where"),
        ("a 1\njust a text\n", "line 2 is not 'word count'"),
        ("a 1\n\n", "line 2 is not 'word count'"),
    ],
)
def test_a_dictionary_without_markers_at_its_end_is_refused(tmp_path, dictionary, message):
    path = written(tmp_path, dict=dictionary)["dict"]
    with pytest.raises(ValueError, match=message):
        read_vocabulary(path)
