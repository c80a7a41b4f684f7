"""examples/bible_es_en/split.py: its splits, and what it refuses."""

import lzma

import pytest

from tests.examples import debian
from tests.examples.miniatures import CORPUS, lines

split = debian.program(debian.EXAMPLES / "bible_es_en" / "split.py")


def run(corpus, folder, valid=1000, test=1000, seed=1):
    numbers = ["--valid", str(valid), "--test", str(test), "--seed", str(seed)]
    split.main([str(corpus), str(folder), *numbers])


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The shipped corpus, split as in the recipe."""
    folder = tmp_path_factory.mktemp("text")
    run(CORPUS, folder)
    return folder


def test_every_verse_except_the_glossary_is_in_exactly_one_split(text):
    rows = lzma.decompress(CORPUS.read_bytes()).decode("utf-8").rstrip("\n").split("\n")
    columns = [row.split("\t") for row in rows]
    corpus = {f"{book} {chapter}:{verse}": (es, en) for book, chapter, verse, es, en in columns}
    names = []
    for part in split.SPLITS:
        own, es, en = (lines(text / f"{part}.{column}") for column in ("verse", "es", "en"))
        assert part == "train" or len(own) == 1000
        assert [corpus[name] for name in own] == list(zip(es, en, strict=True))
        names += own
    assert lines(text / "left-out.verse") == ["Rev 22:21"]
    assert sorted([*names, "Rev 22:21"]) == sorted(corpus)
    for language in ("es", "en"):  # no text is in two splits
        texts = (lines(text / f"{part}.{language}") for part in split.SPLITS)
        of = [{" ".join(line.lower().split()) for line in own} for own in texts]
        assert len(set.union(*of)) == sum(map(len, of))


def test_a_seed_determines_the_splits(text, tmp_path):
    run(CORPUS, tmp_path / "1")
    for path in text.iterdir():
        assert (tmp_path / "1" / path.name).read_bytes() == path.read_bytes()
    run(CORPUS, tmp_path / "2", seed=2)
    assert lines(tmp_path / "2" / "test.verse") != lines(text / "test.verse")


def corpus_of(tmp_path, pairs):
    path = tmp_path / "corpus.tsv"
    rows = [f"Gen\t1\t{n}\t{es}\t{en}\n" for n, (es, en) in enumerate(pairs, start=1)]
    path.write_text("".join(rows), encoding="utf-8")
    return path


def test_verses_that_share_a_text_in_one_language_stay_in_training(tmp_path):
    same = [("misma", "this way"), ("Misma ", "that way")]
    same += [("este", "same  words"), ("otro", "Same words")]
    pairs = [("uno", "one"), ("dos", "two"), ("tres", "three"), *same]
    for seed in range(20):
        folder = tmp_path / str(seed)
        run(corpus_of(tmp_path, pairs), folder, valid=1, test=1, seed=seed)
        drawn = lines(folder / "valid.es") + lines(folder / "test.es")
        assert len(drawn) == 2
        assert set(drawn) <= {"uno", "dos", "tres"}
        assert len(lines(folder / "train.es")) == 5


def test_a_text_over_ten_times_as_long_is_left_out_and_named(tmp_path, capsys):
    pairs = [("uno", "one"), ("dos", "two"), ("tres", "three"), ("a", "x" * 10), ("b", "y" * 11)]
    run(corpus_of(tmp_path, pairs), tmp_path / "out", valid=1, test=1)
    assert lines(tmp_path / "out" / "left-out.verse") == ["Gen 1:5"]
    assert "Gen 1:5" in capsys.readouterr().out
