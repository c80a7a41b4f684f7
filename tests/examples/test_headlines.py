"""examples/debian_headlines/descriptions.py: its splits, and what it refuses."""

import pytest

from tests.examples import debian
from tests.examples.debian import Entry
from tests.examples.miniatures import lines

LONG = "Reads and writes\nwhat is asked of it, in fifteen words at the least, which this has too."
SPLITS = ("train", "valid", "test")
descriptions = debian.program(debian.EXAMPLES / "debian_headlines" / "descriptions.py")


def run(lists, folder):
    descriptions.main([str(lists), str(folder), "--valid", "150", "--test", "150"])


def packages(*entries):
    """The packages that the program reads from these entries."""
    sources = debian.lists.read_sources(["".join(e.packages() for e in entries)])
    text = "".join(e.translation() for e in entries)
    return list(descriptions.read_packages([text], sources))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A hundred and fifty miniature packages, split."""
    folder = tmp_path_factory.mktemp("headlines")
    debian.write(folder / "lists", debian.entries(100))
    run(folder / "lists", folder / "text")
    return folder / "text"


def test_splits_share_no_source_package_and_do_not_depend_on_other_packages(text, tmp_path):
    for column, part in (("package", 1), ("source", 0)):
        of = [{line.split("\t")[part] for line in lines(text / f"{s}.{column}")} for s in SPLITS]
        assert all(of)
        assert len(set.union(*of)) == sum(map(len, of))
    debian.write(tmp_path / "lists", [e for e in debian.entries(100) if "1" in e.name])
    run(tmp_path / "lists", tmp_path / "text")
    for split in SPLITS:
        before = lines(text / f"{split}.package")
        expected = [line for line in before if "1" in line.split("\t")[0]]
        assert lines(tmp_path / "text" / f"{split}.package") == expected


def entry(name, split, long):
    return Entry(name, "one two three", long, debian.source_in(split, name))


def test_the_first_of_equal_bodies_stays_and_near_duplicates_go_to_the_test_set():
    entries = [entry("a", "train", LONG), entry("b", "train", LONG.upper())]
    entries += [entry(f"{s}-{i}", s, f"Version {i} {LONG}") for i, s in enumerate(SPLITS, 11)]
    entries += [entry("own", "valid", f"Own {LONG}")]
    splits = descriptions.split_packages(packages(*entries), 150, 150)
    names = {split: [p.name for p in pairs] for split, pairs in splits.items()}
    assert names == {"train": ["a"], "valid": ["own"], "test": ["test-13"]}


def test_a_description_becomes_one_line_without_bullets_or_paragraph_marks():
    long = "Does this\nand that.\n.\n It can:\n  * read  URLs (https://example.org/a*b)\n  - write\n   + sort -x\n."
    (package,) = packages(Entry("a", "a  title", long))
    body = "Does this and that. It can: read URLs (https://example.org/a*b) write sort -x"
    assert package.body == body
    assert package.title == "a title"


@pytest.mark.parametrize(
    ("body", "title", "usable"),
    [(15, 3, 1), (200, 20, 1), (14, 3, 0), (201, 3, 0), (15, 2, 0), (15, 21, 0)],
)
def test_bodies_of_15_to_200_words_and_titles_of_3_to_20_are_usable(body, title, usable):
    package = descriptions.Package("a", "a", " ".join("b" * body), " ".join("t" * title))
    assert descriptions.is_usable(package) == bool(usable)


def test_a_source_package_loses_its_version_and_a_package_is_read_once():
    made = packages(Entry("a-dev", "t", "b", source="a (1.2-3)"), Entry("b", "t", "b"))
    assert [package.source for package in made] == ["a", "b"]
    made = packages(Entry("a", "new title", "b"), Entry("a", "old title", "b"))
    assert [package.title for package in made] == ["new title"]


@pytest.mark.parametrize("pack", debian.PACK)
def test_a_compressed_list_gives_the_same_result(pack, text, tmp_path):
    debian.write(tmp_path / "lists", debian.entries(100), pack)
    run(tmp_path / "lists", tmp_path / "text")
    for path in text.iterdir():
        assert (tmp_path / "text" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("number", "pack", "message"),
    [
        (20, "", "has no list *Packages*: see"),
        (1, "", "nothing is left for"),
        *((2, pack, f"Packages{pack} is cut short or damaged: ") for pack in debian.PACK),
    ],
)
def test_missing_short_and_damaged_lists_are_refused(number, pack, message, tmp_path, refusal):
    debian.write(tmp_path / "lists", debian.entries(number), pack)
    packages = next((tmp_path / "lists").glob("*Packages*"))
    if pack:
        packages.write_bytes(packages.read_bytes()[:40] + b"x" * 40)
    elif number == 20:
        packages.unlink()
    assert message in refusal(run, tmp_path / "lists", tmp_path / "text")
