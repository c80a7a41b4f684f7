"""examples/bible_es_en/split.py: who may be in which split, and what is refused."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from tests.examples import debian

RECIPE = debian.EXAMPLES / "bible_es_en"
CORPUS = RECIPE / "data" / "bible.es-en.tsv.xz"


split = debian.program(RECIPE / "split.py")


def read(folder: Path, name: str) -> list[str]:
    return (folder / name).read_bytes().decode("utf-8").split("\n")[:-1]


def run(corpus: Path, folder: Path, valid: int = 1000, test: int = 1000, seed: int = 1) -> None:
    numbers = ["--valid", str(valid), "--test", str(test), "--seed", str(seed)]
    split.main([str(corpus), str(folder), *numbers])


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped corpus, split as the recipe splits it."""
    folder = tmp_path_factory.mktemp("text")
    run(CORPUS, folder)
    return folder


@pytest.fixture(scope="module")
def corpus_rows() -> dict[str, tuple[str, str]]:
    rows = lzma.decompress(CORPUS.read_bytes()).decode("utf-8").rstrip("\n").split("\n")
    columns = [row.split("\t") for row in rows]
    return {f"{book} {chapter}:{verse}": (es, en) for book, chapter, verse, es, en in columns}


def test_validation_and_test_have_exactly_1000_verses(text: Path) -> None:
    for name in ("valid", "test"):
        for column in ("es", "en", "verse"):
            assert len(read(text, f"{name}.{column}")) == 1000


def test_every_verse_is_in_one_split_or_named_as_left_out(
    text: Path, corpus_rows: dict[str, tuple[str, str]]
) -> None:
    names = [name for part in split.SPLITS for name in read(text, f"{part}.verse")]
    names += read(text, "left-out.verse")
    assert len(names) == len(set(names)) == 31077
    assert set(names) == set(corpus_rows)


def test_only_the_verse_with_the_glossary_is_left_out(text: Path) -> None:
    assert read(text, "left-out.verse") == ["Rev 22:21"]


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_line_holds_the_texts_of_the_verse_it_is_named_after(
    part: str, text: Path, corpus_rows: dict[str, tuple[str, str]]
) -> None:
    pairs = list(zip(read(text, f"{part}.es"), read(text, f"{part}.en"), strict=True))
    assert pairs == [corpus_rows[name] for name in read(text, f"{part}.verse")]


@pytest.mark.parametrize("language", ["es", "en"])
@pytest.mark.parametrize(
    ("one", "other"), [("train", "valid"), ("train", "test"), ("valid", "test")]
)
def test_no_text_is_in_two_splits(one: str, other: str, language: str, text: Path) -> None:
    def normalised(part: str) -> set[str]:
        return {" ".join(line.lower().split()) for line in read(text, f"{part}.{language}")}

    assert normalised(one).isdisjoint(normalised(other))


def test_the_same_seed_gives_the_same_bytes(text: Path, tmp_path: Path) -> None:
    run(CORPUS, tmp_path)
    names = sorted(path.name for path in text.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    assert all((text / name).read_bytes() == (tmp_path / name).read_bytes() for name in names)


def test_another_seed_draws_other_verses(text: Path, tmp_path: Path) -> None:
    run(CORPUS, tmp_path, seed=2)
    assert read(text, "test.verse") != read(tmp_path, "test.verse")


# --- small corpora -----------------------------------------------------------


def corpus_of(tmp_path: Path, pairs: list[tuple[str, str]]) -> Path:
    path = tmp_path / "corpus.tsv"
    rows = [f"Gen\t1\t{n}\t{es}\t{en}\n" for n, (es, en) in enumerate(pairs, start=1)]
    path.write_text("".join(rows), encoding="utf-8")
    return path


def test_verses_that_share_a_text_in_one_language_stay_in_training(tmp_path: Path) -> None:
    pairs = [
        ("uno", "one"),
        ("dos", "two"),
        ("tres", "three"),
        ("misma", "this way"),
        ("Misma ", "that way"),
        ("este", "same  words"),
        ("otro", "Same words"),
    ]
    for seed in range(20):
        folder = tmp_path / str(seed)
        run(corpus_of(tmp_path, pairs), folder, valid=1, test=1, seed=seed)
        drawn = read(folder, "valid.es") + read(folder, "test.es")
        assert len(drawn) == 2
        assert set(drawn) <= {"uno", "dos", "tres"}
        assert len(read(folder, "train.es")) == 5


def test_a_text_over_ten_times_as_long_is_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [("uno", "one"), ("dos", "two"), ("tres", "three"), ("a", "x" * 10), ("b", "y" * 11)]
    run(corpus_of(tmp_path, pairs), tmp_path / "out", valid=1, test=1)
    assert read(tmp_path / "out", "left-out.verse") == ["Gen 1:5"]
    assert "Gen 1:5" in capsys.readouterr().out
