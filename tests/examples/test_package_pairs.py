"""examples/debian_en_de/pairs.py: what is a pair, which is in which split, and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.examples import debian
from tests.examples.debian import Entry

SPLITS = ("train", "valid", "test")
pairs = debian.program(debian.EXAMPLES / "debian_en_de" / "pairs.py")


def run(lists: Path, folder: Path, *further: str) -> None:
    shares = ["--valid", "150", "--test", "150", "--seed", "1"]
    pairs.main([str(lists), str(folder), *shares, *further])


def lines(folder: Path, name: str) -> list[str]:
    return (folder / name).read_bytes().decode("utf-8").split("\n")[:-1]


def read(*entries: Entry):
    """What is read of entries, as the program reads them."""
    texts = debian.lists_of(entries)
    sources = debian.lists.read_sources([texts["binary-amd64/Packages"]])
    german = [texts.get("i18n/Translation-de", "")]
    return pairs.read_pairs([texts["i18n/Translation-en"]], german, sources)[1]


def parts(english: str, german: str) -> list[tuple[str, str]]:
    """The pairs of a description and its translation, each as a list has it."""
    return [(en, de) for en, de, _ in pairs.paired_parts(english, german)]


def pair(en: str, de: str, source: str = "a"):
    return pairs.Pair(en, de, source, source, "line")


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    debian.write(folder, debian.german(debian.entries(100)))
    return folder


@pytest.fixture(scope="module")
def text(lists: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred and fifty translated miniature packages, split."""
    folder = tmp_path_factory.mktemp("text")
    run(lists, folder)
    return folder


# --- parts --------------------------------------------------------------------------------


def test_lines_of_description_and_paragraphs_pair_in_their_order() -> None:
    english = "a title\n This is\n the first.\n .\n And the second."
    german = "ein Titel\n Das ist der\n erste.\n .\n Und der zweite."
    assert parts(english, german) == [
        ("a title", "ein Titel"),
        ("This is the first.", "Das ist der erste."),
        ("And the second.", "Und der zweite."),
    ]


def test_of_unequally_many_paragraphs_none_pairs() -> None:
    assert parts("a title\n One.\n .\n Two.", "ein Titel\n Eins. Zwei.") == [
        ("a title", "ein Titel")
    ]


def test_items_of_a_list_pair_without_their_bullets() -> None:
    english = "t\n It can:\n  * read\n    files\n  - write -x\n And more."
    german = "t\n Es kann:\n  * Dateien lesen\n  - -x\n    schreiben\n Und mehr."
    assert parts(english, german)[1:] == [
        ("It can:", "Es kann:"),
        ("read files", "Dateien lesen"),
        ("write -x", "-x schreiben"),
        ("And more.", "Und mehr."),
    ]


def test_of_unequally_many_items_the_paragraph_is_the_pair() -> None:
    english = "t\n It can:\n  * read\n  * write"
    german = "t\n Es kann\n  * lesen und schreiben"
    assert parts(english, german)[1:] == [("It can: read write", "Es kann lesen und schreiben")]


# --- pairs --------------------------------------------------------------------------------


def test_a_translation_belongs_to_the_description_of_its_md5() -> None:
    old = Entry("a", "old title", "Old text.", german="alter Titel\nAlter Text.")
    new = replace(old, title="new title", long="New text.", german="neuer Titel\nNeuer Text.")
    texts = [entry.translation() for entry in (old, new)]
    _, found = pairs.read_pairs(texts, [new.translation("de")], {"a": "a"})
    assert [(p.en, p.de) for p in found] == [
        ("new title", "neuer Titel"),
        ("New text.", "Neuer Text."),
    ]


def test_a_translation_of_a_description_that_is_gone_is_left_out() -> None:
    entry = Entry("a", "a title", "Text.", german="ein Titel\nText.")
    now = replace(entry, title="another title")
    assert pairs.read_pairs([now.translation()], [entry.translation("de")], {"a": "a"}) == (0, [])


def test_a_translation_of_two_lists_is_taken_once() -> None:
    entry = Entry("a", "a title", "Text.", german="ein Titel\nDer Text.")
    again = [entry.translation("de")] * 2
    count, found = pairs.read_pairs([entry.translation()], again, {"a": "a"})
    assert (count, len(found)) == (1, 2)


def test_each_package_of_a_description_that_two_have_is_of_its_own_source() -> None:
    first = Entry("a", "a title", "Text.", source="one (1.0)", german="ein Titel\nDer Text.")
    found = read(first, replace(first, name="b", source="two"))
    assert [p.source for p in found] == ["one", "one", "two", "two"]


@pytest.mark.parametrize(
    ("en", "de", "untranslated"),
    [
        ("Perl DBI 1.6", "Perl DBI 1.6", True),
        ('the "DBI" driver', "The »DBI« Driver", True),
        ("the DBI driver", "der DBI-Treiber", False),
        ("weblog manager", "Weblog-Manager", False),
        ("a-b c", "a-b c;", True),
    ],
)
def test_german_of_the_english_words_is_no_translation(
    en: str, de: str, untranslated: bool
) -> None:
    assert pairs.is_untranslated(pair(en, de)) == untranslated


@pytest.mark.parametrize(
    ("en", "de", "usable"),
    [
        ("two words", "zwei Wörter", True),
        ("word " * 40, "Wort " * 40, True),
        ("word " * 41, "Wort " * 40, False),
        ("word " * 40, "Wort " * 41, False),
        ("word", "ein Wort", False),
        ("a word", "Wort", False),
        ("1.0 2.0", "1,0 2,0", False),
        ("to be", "sein ist 19", False),  # more than three times as long
        ("is lost", "ist weg\ufffd", False),
    ],
)
def test_a_usable_pair_has_2_to_40_words_on_either_side_and_like_lengths(
    en: str, de: str, usable: bool
) -> None:
    en, de = en.strip(), de.strip()
    if "19" in de:
        de = de.ljust(3 * len(en) + 1, "x")
    assert pairs.is_usable(pair(en, de)) == usable


# --- splits -------------------------------------------------------------------------------


def source_in(split: str, start: str = "s") -> str:
    """The name of a source package that the hash puts into a split."""
    names = (f"{start}{i}" for i in range(1000))
    return next(n for n in names if debian.lists.split_of(n, 150, 150, 1) == split)


def split_of(*made) -> dict[str, list[str]]:
    """The English texts of each split of these pairs, and of one more pair in each."""
    others = [pair(f"own of {s}", f"eigenes von {s}", source_in(s, "own")) for s in SPLITS]
    splits = pairs.split_pairs([*made, *others], 150, 150, 1)
    return {name: [p.en for p in kept if "own of" not in p.en] for name, kept in splits.items()}


def test_no_source_package_is_in_two_splits(text: Path) -> None:
    of = {s: {line.split("\t")[1] for line in lines(text, f"{s}.package")} for s in SPLITS}
    assert all(of.values())
    assert len(set.union(*of.values())) == sum(map(len, of.values()))


@pytest.mark.parametrize("language", ["en", "de"])
def test_no_text_is_in_two_splits_in_either_language(text: Path, language: str) -> None:
    of = {
        s: {re.sub(r"\d+", "0", line.casefold()) for line in lines(text, f"{s}.{language}")}
        for s in SPLITS
    }
    assert len(set.union(*of.values())) == sum(map(len, of.values()))


def test_a_line_of_each_file_is_of_the_same_part_of_a_package(text: Path) -> None:
    made = {e.name: e for e in debian.german(debian.entries(100))}
    count = 0
    for split in SPLITS:
        columns = (lines(text, f"{split}.{c}") for c in ("package", "en", "de"))
        for named, en, de in zip(*columns, strict=True):
            package, _, part = named.split("\t")
            if part == "line":
                count += 1
                assert (en, de) == (made[package].title, made[package].german.split("\n")[0])
    assert count > 50


def test_of_the_same_english_text_the_first_stays_whatever_its_capitals() -> None:
    first, second = source_in("train", "a"), source_in("train", "b")
    made = [pair("the Text", "der Text", first), pair("The text", "ein anderer", second)]
    assert split_of(*made)["train"] == ["the Text"]


@pytest.mark.parametrize(
    ("split", "other"), [("test", "train"), ("test", "valid"), ("valid", "train")]
)
@pytest.mark.parametrize(
    ("en", "de"), [("Version 12 of it", "anders"), ("differs", "Die Fassung 12 davon")]
)
def test_a_text_of_another_split_but_for_numbers_stays_there_alone(
    split: str, other: str, en: str, de: str
) -> None:
    made = [
        pair("version 11 of it", "die Fassung 11 davon", source_in(other)),
        pair(en, de, source_in(split)),
    ]
    assert split_of(*made) == {**{s: [] for s in SPLITS}, other: ["version 11 of it"]}


def test_a_text_of_validation_and_training_is_in_the_test_neither() -> None:
    made = [pair("the same text", f"von {s}", source_in(s)) for s in SPLITS]
    assert split_of(*made) == {"train": ["the same text"], "valid": [], "test": []}


def test_a_text_of_a_pair_that_is_left_out_of_validation_is_not_in_the_test() -> None:
    made = [
        pair("the same text", "aus dem Training", source_in("train")),
        pair("the same text", "derselbe Text", source_in("valid")),
        pair("another text", "derselbe Text", source_in("test")),
    ]
    assert split_of(*made) == {"train": ["the same text"], "valid": [], "test": []}


# --- facts --------------------------------------------------------------------------------


def test_the_facts_count_what_is_in_the_files(text: Path) -> None:
    facts = (text / "facts.txt").read_text(encoding="utf-8")
    assert facts.startswith("150 translated descriptions; ")
    for split in SPLITS:
        named = [line.split("\t") for line in lines(text, f"{split}.package")]
        sources = len({source for _, source, _ in named})
        titles = sum(part == "line" for *_, part in named) / len(named)
        told = f"{split}: {len(named)} pairs of {sources} source packages, {titles:.0%} of them"
        assert told in facts
    total = sum(len(lines(text, f"{split}.en")) for split in SPLITS)
    assert f"; {total} pairs without" in facts


# --- packed lists and what is refused -----------------------------------------------------


@pytest.mark.skipif(
    not (debian.lists.APT_HELPER.exists() and shutil.which("lz4")), reason="no apt, or no lz4"
)
def test_apt_unpacks_what_python_cannot(text: Path, lists: Path, tmp_path: Path) -> None:
    shutil.copytree(lists, tmp_path / "lists")
    for path in list((tmp_path / "lists").iterdir()):
        subprocess.run(["lz4", "-q", "--rm", path, f"{path}.lz4"], check=True)
    run(tmp_path / "lists", tmp_path / "text")
    assert lines(tmp_path / "text", "test.de") == lines(text, "test.de")


def test_lists_of_two_releases_are_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = debian.german(debian.entries(20))
    debian.write(tmp_path / "lists", made)
    (path,) = (tmp_path / "lists").glob("*Translation-de*")
    other = [replace(entry, title=f"{entry.title} of before") for entry in made]
    path.write_text("".join(entry.translation("de") for entry in other), encoding="utf-8")
    with pytest.raises(SystemExit):
        run(tmp_path / "lists", tmp_path / "text")
    error = capsys.readouterr().err
    assert "no pair is left for train, as the lists have too few translations" in error
    assert "name it in RAW_DIR" in error


@pytest.mark.parametrize("share", ["0", "251"])
def test_a_share_out_of_range_is_refused(
    share: str, lists: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(lists, tmp_path / "text", "--test", share)
    assert f"--test got {share}: give a number from 1 to 250" in capsys.readouterr().err
