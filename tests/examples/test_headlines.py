"""examples/debian_headlines/descriptions.py: who may be in which split, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import debian
from tests.examples.debian import Entry

RECIPE = Path(__file__).parents[2] / "examples" / "debian_headlines"
LONG = "Reads and writes\nwhat is asked of it, in fifteen words at the least, which this has too."
WORDS = LONG.replace("\n", " ")


descriptions = debian.program(RECIPE / "descriptions.py")


def lines(folder: Path, name: str) -> list[str]:
    return (folder / name).read_bytes().decode("utf-8").split("\n")[:-1]


def run(lists: Path, folder: Path, valid: int = 150, test: int = 150) -> None:
    descriptions.main([str(lists), str(folder), "--valid", str(valid), "--test", str(test)])


def packages(*entries: Entry):
    """What is read of entries, as the program reads them."""
    sources = debian.lists.read_sources(["".join(e.packages() for e in entries)])
    text = "".join(e.translation() for e in entries)
    return list(descriptions.read_packages([text], sources))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred and fifty miniature packages, split."""
    folder = tmp_path_factory.mktemp("headlines")
    debian.write(folder / "lists", debian.entries(100))
    run(folder / "lists", folder / "text")
    return folder / "text"


# --- splits -------------------------------------------------------------------------------


def test_no_source_package_and_no_body_is_in_two_splits(text: Path) -> None:
    splits = ("train", "valid", "test")
    for column, part in (("package", 1), ("source", 0)):
        of = {s: {line.split("\t")[part] for line in lines(text, f"{s}.{column}")} for s in splits}
        assert all(of.values())
        assert len(set.union(*of.values())) == sum(map(len, of.values()))


def test_the_split_of_a_package_depends_on_no_other(text: Path, tmp_path: Path) -> None:
    debian.write(tmp_path / "lists", [e for e in debian.entries(100) if "1" in e.name])
    run(tmp_path / "lists", tmp_path / "text")
    for split in ("train", "valid", "test"):
        before = lines(text, f"{split}.package")
        assert lines(tmp_path / "text", f"{split}.package") == [
            line for line in before if "1" in line.split("\t")[0]
        ]


def source_in(split: str, start: str) -> str:
    """The name of a source package that the hash puts into a split."""
    names = (f"{start}{i}" for i in range(1000))
    return next(name for name in names if debian.lists.split_of(name, 150, 150) == split)


def test_of_the_same_body_the_first_stays_whatever_its_capitals() -> None:
    first = Entry("a", "one two three", LONG, source_in("train", "a"))
    second = Entry("b", "four five six", LONG.upper(), source_in("train", "b"))
    others = [Entry(s, "one two three", f"{s} {LONG}", source_in(s, s)) for s in ("valid", "test")]
    splits = descriptions.split_packages(packages(first, second, *others), 150, 150)
    assert [p.name for p in splits["train"]] == ["a"]


def test_a_body_that_differs_from_a_test_body_in_a_number_is_in_the_test_alone() -> None:
    entries = [
        Entry(f"{split}-{i}", "one two three", f"Version {i} {LONG}", source_in(split, split))
        for i, split in enumerate(("train", "valid", "test"), start=11)
    ]
    entries += [
        Entry(f"{split}-own", "one two three", f"{split} {LONG}", source_in(split, split))
        for split in ("train", "valid")
    ]
    splits = descriptions.split_packages(packages(*entries), 150, 150)
    names = {split: [p.name for p in kept] for split, kept in splits.items()}
    assert names == {"train": ["train-own"], "valid": ["valid-own"], "test": ["test-13"]}


# --- text ---------------------------------------------------------------------------------


def test_a_description_becomes_one_line_without_bullets_and_marks_of_paragraphs() -> None:
    long = (
        "Does this\nand that.\n.\n It can:\n  * read  URLs (https://example.org/a*b)\n"
        "  - write\n   + sort -x\n."
    )
    (package,) = packages(Entry("a", "a  title", long))
    assert package.body == (
        "Does this and that. It can: read URLs (https://example.org/a*b) write sort -x"
    )
    assert package.title == "a title"


@pytest.mark.parametrize(
    ("body", "title", "usable"),
    [(15, 3, True), (200, 20, True), (14, 3, False), (201, 3, False), (15, 2, False), (15, 21, 0)],
)
def test_bodies_of_15_to_200_words_and_titles_of_3_to_20_are_usable(
    body: int, title: int, usable: bool
) -> None:
    package = descriptions.Package("a", "a", " ".join("b" * body), " ".join("t" * title))
    assert descriptions.is_usable(package) == bool(usable)


def test_a_source_package_is_named_without_its_version_and_is_the_package_where_none_is() -> None:
    made = packages(Entry("a-dev", "t", "b", source="a (1.2-3)"), Entry("b", "t", "b"))
    assert [package.source for package in made] == ["a", "b"]


def test_a_package_of_two_lists_is_taken_once() -> None:
    text = Entry("a", "new title", "b").translation()
    again = Entry("a", "old title", "b").translation()
    (package,) = descriptions.read_packages([text, again], {"a": "a"})
    assert package.title == "new title"


# --- facts --------------------------------------------------------------------------------


def test_the_overlap_is_the_share_of_title_words_in_the_body() -> None:
    made = [
        descriptions.Package("a", "a", "the Quick fox", "quick brown fox!"),
        descriptions.Package("b", "b", "dogs", "cat"),
    ]
    assert descriptions.overlap(made) == pytest.approx(2 / 4)


# --- packed lists and what is refused -----------------------------------------------------


@pytest.mark.parametrize("pack", list(debian.PACK))
def test_a_packed_list_is_the_same_list(pack: str, text: Path, tmp_path: Path) -> None:
    debian.write(tmp_path / "lists", debian.entries(100), pack)
    run(tmp_path / "lists", tmp_path / "text")
    names = [path.name for path in sorted(text.iterdir())]
    assert [p.name for p in sorted((tmp_path / "text").iterdir())] == names
    for name in names:
        assert (tmp_path / "text" / name).read_bytes() == (text / name).read_bytes()


@pytest.mark.parametrize("kind", ["Translation-en", "Packages"])
def test_a_missing_list_is_named_with_the_remedy(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    debian.write(tmp_path / "lists", debian.entries(20))
    next((tmp_path / "lists").glob(f"*{kind}*")).unlink()
    with pytest.raises(SystemExit):
        run(tmp_path / "lists", tmp_path / "text")
    error = capsys.readouterr().err
    assert f"has no list *{kind}*" in error
    assert "name it in RAW_DIR" in error


def test_lists_with_too_few_descriptions_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    debian.write(tmp_path / "lists", debian.entries(1))
    with pytest.raises(SystemExit):
        run(tmp_path / "lists", tmp_path / "text")
    assert "no package is left for" in capsys.readouterr().err
