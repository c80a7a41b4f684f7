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
from tests.examples.miniatures import lines

SPLITS = ("train", "valid", "test")
pairs = debian.program(debian.EXAMPLES / "debian_en_de" / "pairs.py")


def run(lists: Path, folder: Path, *further: str) -> None:
    shares = ["--valid", "150", "--test", "150", "--seed", "1"]
    pairs.main([str(lists), str(folder), *shares, *further])


def read(english: list[Entry], german: list[Entry], **sources: str):
    texts = [e.translation() for e in english], [e.translation("de") for e in german]
    return pairs.read_pairs(*texts, sources or {"a": "a"})


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


# --- parts and pairs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("english", "german", "expected"),
    [
        (
            "This is\n the first.\n .\n And the second.",
            "Das ist der\n erste.\n .\n Und der zweite.",
            [("This is the first.", "Das ist der erste."), ("And the second.", "Und der zweite.")],
        ),
        ("One.\n .\n Two.", "Eins. Zwei.", []),  # unequally many paragraphs
        (
            "It can:\n  * read\n    files\n  - write -x\n And more.",
            "Es kann:\n  * Dateien lesen\n  - -x\n    schreiben\n Und mehr.",
            [
                ("It can:", "Es kann:"),
                ("read files", "Dateien lesen"),
                ("write -x", "-x schreiben"),
                ("And more.", "Und mehr."),
            ],
        ),
        (  # unequally many items
            "It can:\n  * read\n  * write",
            "Es kann\n  * lesen und schreiben",
            [("It can: read write", "Es kann lesen und schreiben")],
        ),
    ],
)
def test_parts_of_a_description_pair_one_to_one(
    english: str, german: str, expected: list[tuple[str, str]]
) -> None:
    found = [(en, de) for en, de, _ in pairs.paired_parts(f"t\n {english}", f"T\n {german}")]
    assert found == [("t", "T"), *expected]


def test_a_translation_belongs_to_the_description_of_its_md5_and_is_taken_once() -> None:
    old = Entry("a", "old title", "Old text.", german="alter Titel\nAlter Text.")
    new = replace(old, title="new title", long="New text.", german="neuer Titel\nNeuer Text.")
    count, found = read([old, new], [new, new])
    assert count == 1
    assert [(p.en, p.de) for p in found] == [
        ("new title", "neuer Titel"),
        ("New text.", "Neuer Text."),
    ]
    assert read([new], [old]) == (0, [])  # of a description that is gone
    other = replace(new, name="b")
    _, found = read([new, other], [new, other], a="one", b="two")
    assert [p.source for p in found] == ["one", "one", "two", "two"]


@pytest.mark.parametrize(
    ("en", "de", "untranslated"),
    [
        ("Perl DBI 1.6", "Perl DBI 1.6", True),
        ('the "DBI" driver', "The »DBI« Driver", True),
        ("the DBI driver", "der DBI-Treiber", False),
        ("weblog manager", "Weblog-Manager", False),
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
        ("word " * 39 + "word", "Wort " * 39 + "Wort", True),
        ("word " * 40 + "word", "Wort " * 39 + "Wort", False),
        ("word " * 39 + "word", "Wort " * 40 + "Wort", False),
        ("word", "ein Wort", False),
        ("a word", "Wort", False),
        ("1.0 2.0", "1,0 2,0", False),
        ("to be", "sein oder nicht ", False),  # more than three times as long
        ("is lost", "ist weg\ufffd", False),
    ],
)
def test_a_usable_pair_has_2_to_40_words_on_either_side_and_like_lengths(
    en: str, de: str, usable: bool
) -> None:
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


def test_no_source_package_and_no_text_is_in_two_splits(text: Path) -> None:
    sources = [{line.split("\t")[1] for line in lines(text / f"{s}.package")} for s in SPLITS]
    texts = [
        [
            {re.sub(r"\d+", "0", line.casefold()) for line in lines(text / f"{s}.{language}")}
            for s in SPLITS
        ]
        for language in ("en", "de")
    ]
    for of in (sources, *texts):
        assert all(of)
        assert len(set.union(*of)) == sum(map(len, of))


def test_a_line_of_each_file_is_of_the_same_part_and_the_facts_count_them(text: Path) -> None:
    made = {e.name: e for e in debian.german(debian.entries(100))}
    facts = (text / "facts.txt").read_text(encoding="utf-8")
    assert facts.startswith("150 translated descriptions; ")
    total = 0
    for split in SPLITS:
        named = [line.split("\t") for line in lines(text / f"{split}.package")]
        sides = (lines(text / f"{split}.{side}") for side in ("en", "de"))
        titles = 0
        for (package, _, part), en, de in zip(named, *sides, strict=True):
            if part == "line":
                titles += 1
                assert (en, de) == (made[package].title, made[package].german.split("\n")[0])
        total += len(named)
        sources = len({source for _, source, _ in named})
        told = (
            f"{split}: {len(named)} pairs of {sources} source packages, {titles / len(named):.0%}"
        )
        assert f"{told} of them" in facts
    assert f"; {total} pairs without" in facts


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


def test_of_the_same_text_the_first_stays_and_what_is_left_out_counts_for_the_test() -> None:
    first, second = source_in("train", "a"), source_in("train", "b")
    made = [pair("the Text", "der Text", first), pair("The text", "ein anderer", second)]
    assert split_of(*made)["train"] == ["the Text"]
    made = [pair("the same text", f"von {s}", source_in(s)) for s in SPLITS]
    made.append(pair("another text", "von valid", source_in("test", "t")))
    assert split_of(*made) == {"train": ["the same text"], "valid": [], "test": []}


# --- packed lists and what is refused -----------------------------------------------------


@pytest.mark.skipif(
    not (debian.lists.APT_HELPER.exists() and shutil.which("lz4")), reason="no apt, or no lz4"
)
def test_apt_unpacks_what_python_cannot(text: Path, lists: Path, tmp_path: Path) -> None:
    shutil.copytree(lists, tmp_path / "lists")
    for path in list((tmp_path / "lists").iterdir()):
        subprocess.run(["lz4", "-q", "--rm", path, f"{path}.lz4"], check=True)
    run(tmp_path / "lists", tmp_path / "text")
    assert lines(tmp_path / "text" / "test.de") == lines(text / "test.de")


def test_lists_of_two_releases_and_a_share_out_of_range_are_refused(
    lists: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    with pytest.raises(SystemExit):
        run(lists, tmp_path / "text", "--test", "251")
    assert "--test got 251: give a number from 1 to 250" in capsys.readouterr().err
