"""examples/bible_testaments/verses.py: its splits."""

import pytest

from tests.examples import debian
from tests.examples.miniatures import CORPUS, lines

SPLITS = ("train", "valid", "test")
split = debian.program(debian.EXAMPLES / "bible_es_en" / "split.py")  # imported by verses.py
verses = debian.program(debian.EXAMPLES / "bible_testaments" / "verses.py")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The shipped corpus, as the recipe splits it into testaments and books."""
    folder = tmp_path_factory.mktemp("text")
    for labels in verses.LABELS:
        verses.main([str(CORPUS), str(folder / labels), "--labels", labels])
    return folder


@pytest.fixture(scope="module")
def corpus():
    """A dict from the name of each verse to its English text, in the order of the corpus."""
    return {verse.name: verse.en for verse in split.read_verses(CORPUS)}


def column(text, split, name, labels="testaments"):
    return lines(text / labels / f"{split}.{name}")


def test_chapters_and_texts_are_in_one_split_each(text):
    verse, input0 = ([column(text, x, name) for x in SPLITS] for name in ("verse", "input0"))
    chapters = [{name.rpartition(":")[0] for name in names} for names in verse]
    texts = [{" ".join(one.split()).casefold() for one in own} for own in input0]
    for of in (chapters, texts):
        assert len(set.union(*of)) == sum(map(len, of))
    for name, own in zip(SPLITS, chapters, strict=True):
        assert set(column(text, name, "group")) == own
    assert len(chapters[2]) == pytest.approx(0.1 * sum(map(len, chapters)), abs=2)


def test_training_has_every_book_and_most_of_its_chapters(text, corpus):
    train, *others = (set(column(text, split, "label", "books")) for split in SPLITS)
    assert train == {name.rpartition(" ")[0] for name in corpus}
    assert len(train) == 66
    assert not {"Obad", "Phlm", "2John", "3John", "Jude"} & set.union(*others)  # one chapter each


def test_verses_keep_their_text_and_order_and_have_their_labels(text, corpus):
    place = {name: number for number, name in enumerate(corpus)}
    old = list(dict.fromkeys(name.rpartition(" ")[0] for name in corpus))[:39]
    for split in SPLITS:
        names = column(text, split, "verse")
        assert names == sorted(names, key=place.__getitem__)
        assert names == column(text, split, "verse", "books")
        assert column(text, split, "input0") == [corpus[name] for name in names]
        books = [name.rpartition(" ")[0] for name in names]
        assert column(text, split, "label", "books") == books
        expected = ["old" if book in old else "new" for book in books]
        assert column(text, split, "label") == expected
