"""examples/bible_testaments/verses.py: who may be in which split."""

from __future__ import annotations

import lzma
from collections import Counter

import pytest

from tests.examples import debian
from tests.examples.miniatures import lines

EXAMPLES = debian.EXAMPLES
RECIPE = EXAMPLES / "bible_testaments"
CORPUS = EXAMPLES / "bible_es_en" / "data" / "bible.es-en.tsv.xz"
SPLITS = ("train", "valid", "test")


debian.program(EXAMPLES / "bible_es_en" / "split.py")  # which verses.py imports
verses = debian.program(RECIPE / "verses.py")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The shipped corpus, as the recipe splits it, to testaments and to books."""
    folder = tmp_path_factory.mktemp("text")
    for labels in verses.LABELS:
        verses.main([str(CORPUS), str(folder / labels), "--labels", labels])
    return folder


@pytest.fixture(scope="module")
def corpus():
    """Name of each verse to its English text, in the order of the corpus."""
    rows = lzma.decompress(CORPUS.read_bytes()).decode("utf-8").rstrip("\n").split("\n")
    columns = [row.split("\t") for row in rows]
    return {f"{book} {chapter}:{verse}": en for book, chapter, verse, _, en in columns}


def column(text, split, name, labels="testaments"):
    return lines(text / labels / f"{split}.{name}")


# --- splits -------------------------------------------------------------------------------


def test_a_chapter_is_in_one_split(text):
    chapters = [
        {name.rpartition(":")[0] for name in column(text, split, "verse")} for split in SPLITS
    ]
    assert not chapters[0] & chapters[1]
    assert not chapters[0] & chapters[2]
    assert not chapters[1] & chapters[2]
    for split, own in zip(SPLITS, chapters, strict=True):
        assert set(column(text, split, "group")) == own
    assert len(chapters[2]) == pytest.approx(0.1 * sum(map(len, chapters)), abs=2)


def test_a_text_is_in_one_split(text):
    texts = [
        {" ".join(verse.split()).casefold() for verse in column(text, split, "input0")}
        for split in SPLITS
    ]
    assert not texts[0] & texts[1]
    assert not texts[0] & texts[2]
    assert not texts[1] & texts[2]


def test_every_book_is_in_training_with_most_of_its_chapters(text, corpus):
    books = [Counter(column(text, split, "label", "books")) for split in SPLITS]
    everything = Counter(name.rpartition(" ")[0] for name in corpus)
    assert set(books[0]) == set(everything)
    assert len(everything) == 66
    for book in ("Obad", "Phlm", "2John", "3John", "Jude"):  # of one chapter
        assert not books[1][book]
        assert not books[2][book]


def test_verses_are_those_of_the_corpus_in_its_order_with_their_labels(text, corpus):
    place = {name: number for number, name in enumerate(corpus)}
    old = set(list(dict.fromkeys(name.rpartition(" ")[0] for name in corpus))[:39])
    for split in SPLITS:
        names = column(text, split, "verse")
        assert names == sorted(names, key=place.__getitem__)
        assert column(text, split, "input0") == [corpus[name] for name in names]
        books = [name.rpartition(" ")[0] for name in names]
        assert column(text, split, "label", "books") == books
        expected = ["old" if book in old else "new" for book in books]
        assert column(text, split, "label") == expected


def test_both_tasks_have_the_same_verses_and_a_seed_draws_them_again(text, tmp_path):
    for split in SPLITS:
        assert column(text, split, "verse") == column(text, split, "verse", "books")
    for seed in (1, 2):
        verses.main([str(CORPUS), str(tmp_path / f"{seed}"), "--seed", f"{seed}"])
    assert column(tmp_path, "test", "verse", "1") == column(text, "test", "verse")
    assert column(tmp_path, "test", "verse", "2") != column(text, "test", "verse")


def test_the_facts_are_those_that_the_readme_says(text):
    readme = (RECIPE / "README.md").read_text(encoding="utf-8")
    for line in lines(text / "testaments" / "facts.txt"):
        assert line in readme
