"""examples/debian_en_de/pairs.py: its pairs, its splits, and what it refuses."""

import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.examples import debian
from tests.examples.debian import Entry
from tests.examples.miniatures import lines

SPLITS = ("train", "valid", "test")
pairs = debian.program(debian.EXAMPLES / "debian_en_de" / "pairs.py")


def run(lists, folder, *further):
    shares = ["--valid", "150", "--test", "150", "--seed", "1"]
    pairs.main([str(lists), str(folder), *shares, *further])


def read(english, german, **sources):
    texts = [e.translation() for e in english], [e.translation("de") for e in german]
    return pairs.read_pairs(*texts, sources or {"a": "a"})


def pair(en, de, source="a"):
    return pairs.Pair(en, de, source, source, "line")


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lists")
    debian.write(folder, debian.german(debian.entries(100)))
    return folder


@pytest.fixture(scope="module")
def text(lists, tmp_path_factory):
    """A hundred and fifty translated miniature packages, split."""
    folder = tmp_path_factory.mktemp("text")
    run(lists, folder)
    return folder


@pytest.mark.parametrize(
    ("english", "german", "expected"),
    [
        (
            "This is\n the first.\n .\n And the second.",
            "Das ist der\n erste.\n .\n Und der zweite.",
            [("This is the first.", "Das ist der erste."), ("And the second.", "Und der zweite.")],
        ),
        ("One.\n .\n Two.", "Eins. Zwei.", []),  # different numbers of paragraphs
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
        (  # different numbers of items
            "It can:\n  * read\n  * write",
            "Es kann\n  * lesen und schreiben",
            [("It can: read write", "Es kann lesen und schreiben")],
        ),
    ],
)
def test_parts_of_a_description_are_paired_one_to_one(english, german, expected):
    found = [(en, de) for en, de, _ in pairs.paired_parts(f"t\n {english}", f"T\n {german}")]
    assert found == [("t", "T"), *expected]


def test_a_translation_is_matched_by_md5_and_used_once():
    old = Entry("a", "old title", "Old text.", german="alter Titel\nAlter Text.")
    new = replace(old, title="new title", long="New text.", german="neuer Titel\nNeuer Text.")
    found = read([old, new], [new, new])
    expected = [("new title", "neuer Titel"), ("New text.", "Neuer Text.")]
    assert [(p.en, p.de) for p in found] == expected
    assert read([new], [old]) == []  # its description is gone
    other = replace(new, name="b")
    found = read([new, other], [new, other], a="one", b="two")
    assert [p.source for p in found] == ["one", "one", "two", "two"]


@pytest.mark.parametrize(
    ("en", "de", "wrong"),
    [
        ("two words", "zwei Wörter", ""),
        ("word " * 39 + "word", "Wort " * 39 + "Wort", ""),
        ("word " * 40 + "word", "Wort " * 39 + "Wort", "unusable"),
        ("word", "ein Wort", "unusable"),
        ("a word", "Wort", "unusable"),
        ("1.0 2.0", "1,0 2,0", "unusable"),
        ("to be", "sein oder nicht ", "unusable"),  # more than three times as long
        ("is lost", "ist weg\ufffd", "unusable"),
        ('the "DBI" driver', "The »DBI« Driver", "untranslated"),
        ("the DBI driver", "der DBI-Treiber", ""),
        ("weblog manager tool", "Weblog-Manager Tool", ""),
    ],
)
def test_usable_pairs_have_2_to_40_words_similar_lengths_and_a_translation(en, de, wrong):
    assert pairs.is_usable(pair(en, de)) == (wrong != "unusable")
    assert wrong == "unusable" or pairs.is_untranslated(pair(en, de)) == bool(wrong)


source_in = partial(debian.source_in, seed=1)


def split_of(*made):
    """The English texts in each split of these pairs, to which one pair per split is added."""
    others = [pair(f"own of {s}", f"eigenes von {s}", source_in(s, "own")) for s in SPLITS]
    splits = pairs.split_pairs([*made, *others], 150, 150, 1)
    return {name: [p.en for p in pairs if "own of" not in p.en] for name, pairs in splits.items()}


def test_splits_share_no_source_package_and_no_text(text):
    made = {e.name: e for e in debian.german(debian.entries(100))}
    seen = [set(), set(), set()]
    for split in SPLITS:
        named = [line.split("\t") for line in lines(text / f"{split}.package")]
        sides = [lines(text / f"{split}.{side}") for side in ("en", "de")]
        for (package, _, part), en, de in zip(named, *sides, strict=True):
            if part == "line":
                assert (en, de) == (made[package].title, made[package].german.split("\n")[0])
        sources = {source for _, source, _ in named}
        folded = [{re.sub(r"\d+", "0", line.casefold()) for line in side} for side in sides]
        for before, own in zip(seen, (sources, *folded), strict=True):
            assert not before & own
            before |= own


@pytest.mark.parametrize(
    ("split", "other"), [("test", "train"), ("test", "valid"), ("valid", "train")]
)
def test_a_text_repeated_with_other_numbers_stays_in_one_split(split, other):
    first = pair("version 11 of it", "die Fassung 11 davon", source_in(other))
    for en, de in (("Version 12 of it", "anders"), ("differs", "Die Fassung 12 davon")):
        found = split_of(first, pair(en, de, source_in(split)))
        assert found == {**{s: [] for s in SPLITS}, other: ["version 11 of it"]}


def test_the_first_of_equal_texts_stays_and_left_out_pairs_count_for_the_test():
    first, second = source_in("train", "a"), source_in("train", "b")
    made = [pair("the Text", "der Text", first), pair("The text", "ein anderer", second)]
    assert split_of(*made)["train"] == ["the Text"]
    made = [pair("the same text", f"von {s}", source_in(s)) for s in SPLITS]
    made.append(pair("another text", "von valid", source_in("test", "t")))
    assert split_of(*made) == {"train": ["the same text"], "valid": [], "test": []}


@pytest.mark.skipif(
    not (Path(debian.lists.APT_HELPER).exists() and shutil.which("lz4")), reason="no apt, or no lz4"
)
def test_apt_unpacks_what_python_cannot(text, lists, tmp_path):
    shutil.copytree(lists, tmp_path / "lists")
    for path in list((tmp_path / "lists").iterdir()):
        subprocess.run(["lz4", "-q", "--rm", path, f"{path}.lz4"], check=True)
    run(tmp_path / "lists", tmp_path / "text")
    assert lines(tmp_path / "text" / "test.de") == lines(text / "test.de")
