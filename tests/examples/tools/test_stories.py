"""Stories of CNN and Daily Mail: how they are read and split."""

import hashlib

import pytest
from stories import parse_story, write_splits

from tests.examples import miniatures
from tests.examples.miniatures import lines

TWO = "@highlight\n\nA first\n\n@highlight\n\nA second!\n"


def archive(folder, stories, name="cnn"):
    path = folder / f"{name}_stories.tgz"
    members = {f"{name}/stories/{story}.story": text.encode() for story, text in stories.items()}
    miniatures.write_tar(path, members)
    return path


def urls(folder, *addresses):
    path = folder / "all_train.txt"
    path.write_text("".join(f"{address}\n" for address in addresses))
    return path


def sha1(text):
    return hashlib.sha1(text.encode()).hexdigest()


def test_paragraphs_are_the_article_and_highlights_the_summary():
    article, summary = parse_story(f"One  here.\n\nTwo.\n\n{TWO}")
    assert article == "One here. Two."
    assert summary == "<t> A first . </t> <t> A second! </t>"
    # A line without a full stop gets one
    for end in (".", "?", "'", "\u201d", ")", "", ":", "]"):
        stop = " ." if end in ("", ":", "]") else ""
        assert parse_story(f"A caption{end}\nB.\n")[0] == f"A caption{end}{stop} B."


def test_pairs_are_in_the_order_of_the_list_and_incomplete_ones_are_counted(tmp_path):
    first, second = sha1("u1"), sha1("u2")
    others = {sha1("u3"): TWO, sha1("u4"): "C.\n", "0" * 40: f"No.\n\n{TWO}"}
    archives = [
        archive(tmp_path, {second: f"B.\n\n{TWO}", **others}),
        archive(tmp_path, {first: f"A.\n\n{TWO}"}, "dailymail"),
    ]
    out = tmp_path / "text"
    out.mkdir()
    listed = urls(tmp_path, "u1", "u3", "", "u2", "u4")  # an empty line names no story
    messages = list(write_splits(out, archives, {"train": listed}))
    assert messages == ["train: 2 pairs; left out 2 without an article or a summary"]
    assert lines(out / "train.article") == ["A.", "B."]
    assert lines(out / "train.story") == [first, second]
    assert lines(out / "train.summary") == ["<t> A first . </t> <t> A second! </t>"] * 2
    assert len(list(out.iterdir())) == 3  # no other files


def test_a_wrong_archive_is_named(tmp_path):
    found = archive(tmp_path, {sha1("u1"): f"A.\n\n{TWO}"})
    message = r"1 of the 2 stories of all_train.txt, such as \w+.story, are in none"
    with pytest.raises(ValueError, match=message):
        list(write_splits(tmp_path, [found], {"train": urls(tmp_path, "u1", "x")}))
