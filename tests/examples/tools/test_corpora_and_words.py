"""examples/tools: sentences out of archives, and words out of sentences."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples import miniatures
from tests.examples.miniatures import lines

TOOLS = Path(__file__).resolve().parents[3] / "examples" / "tools"


def tool(name, *arguments, check=True, text=None):
    result = subprocess.run(
        [sys.executable, TOOLS / f"{name}.py", *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if check:
        assert result.returncode == 0, result.stderr
    return result


def pairs(folder, left, right, *options, **more):
    """Take pairs out of an archive with these two files."""
    miniatures.write_tar(folder / "a.tgz", {"x/c.aa": left, "x/c.bb": right})
    arguments = [folder / "a.tgz", "x/c.{lang}", "aa", "bb", folder / "train", *options]
    return tool("corpora", "pairs", *arguments, **more)


def test_pairs_are_added_to_what_is_there_with_single_spaces(tmp_path):
    for _ in range(2):
        pairs(tmp_path, "a  b\n c\u00a0d \n".encode(), b"A\nB\n")
    assert lines(tmp_path / "train.aa") == ["a b", "c d"] * 2
    assert lines(tmp_path / "train.bb") == ["A", "B"] * 2


def test_only_a_newline_ends_a_sentence(tmp_path):
    odd = "one\rtwo\u2028three\x85four\x0bfive\nsix\n"
    pairs(tmp_path, odd.encode(), b"A\nB\n")
    assert lines(tmp_path / "train.aa") == ["one two three four five", "six"]


def test_pairs_with_an_empty_side_or_other_bytes_are_left_out_and_counted(tmp_path):
    result = pairs(tmp_path, b"a\n\nc\n\xff\n", b"A\nB\n \nD\n")
    assert lines(tmp_path / "train.aa") == ["a"]
    assert "1 pairs; left out 2 with an empty side, 1 that are no UTF-8" in result.stdout


def test_a_test_set_loses_nothing(tmp_path):
    pairs(tmp_path, b"a\n\nc\n", b"A\nB\n\n", "--keep-empty")
    assert lines(tmp_path / "train.aa") == ["a", "", "c"]
    assert lines(tmp_path / "train.bb") == ["A", "B", ""]
    result = pairs(tmp_path, b"\xff\n", b"A\n", "--keep-empty", check=False)
    assert result.returncode == 1
    assert "sentence 1 of x/c.aa is no UTF-8" in result.stderr


def test_files_of_unequal_length_are_refused(tmp_path):
    result = pairs(tmp_path, b"a\nb\nc\n", b"A\n", check=False)
    assert result.returncode == 1
    assert "x/c.aa and x/c.bb have 3 and 1 sentences\n" in result.stderr


def test_one_file_with_both_languages_is_split_in_its_own_order(tmp_path):
    miniatures.write_tar(tmp_path / "a.tgz", {"w": b"B1 ||| A1\nno pair\nB2 ||| A2\n"})
    options = ["--separator", "||| bb,aa"]
    tool("corpora", "pairs", tmp_path / "a.tgz", "w", "aa", "bb", tmp_path / "train", *options)
    assert lines(tmp_path / "train.aa") == ["A1", "A2"]
    assert lines(tmp_path / "train.bb") == ["B1", "B2"]


def test_nothing_is_left_where_an_archive_is_damaged(tmp_path):
    miniatures.write_tar(tmp_path / "a.tgz", {"c.aa": b"a\n" * 9000, "c.bb": b"A\n" * 9000})
    whole = (tmp_path / "a.tgz").read_bytes()
    (tmp_path / "a.tgz").write_bytes(whole[:-30])
    arguments = [tmp_path / "a.tgz", "c.{lang}", "aa", "bb", tmp_path / "train"]
    result = tool("corpora", "pairs", *arguments, check=False)
    assert result.returncode == 1
    assert "a.tgz is cut short or damaged" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.tgz"]


# --- subtitles ---------------------------------------------------------------


def subtitles(folder, out, *options, check=True):
    out.mkdir()
    archives = [folder / "OpenSubtitles.en-ru.txt.zip", folder / "OpenSubtitles.en-ru.xml.gz"]
    numbers = ["--train", 100, "--valid", 16, "--test", 12, *options]
    return tool("corpora", "subtitles", *archives, "en", "ru", out, *numbers, check=check)


@pytest.fixture
def opus(tmp_path):
    folder = tmp_path / "opus"
    folder.mkdir()
    miniatures.opensubtitles(folder)
    return folder


def read(out):
    names = ["train", "valid", "test"]
    return {
        name: list(zip(lines(out / f"{name}.en"), lines(out / f"{name}.ru"), strict=True))
        for name in names
    }


def test_the_seed_alone_draws_the_subtitles(opus, tmp_path):
    first, again, other = tmp_path / "1", tmp_path / "2", tmp_path / "3"
    subtitles(opus, first)
    subtitles(opus, again)
    subtitles(opus, other, "--seed", 2)
    assert read(first) == read(again)
    assert {name: len(pairs) for name, pairs in read(first).items()} == {
        "train": 100,
        "valid": 16,
        "test": 12,
    }
    assert read(first)["train"] != read(other)["train"]


def test_the_least_overlap_can_be_chosen(opus, tmp_path):
    texts = miniatures.Texts("en", "ru")
    number = {pair: n for n, pair in enumerate(texts.train + texts.valid + texts.test)}
    subtitles(opus, tmp_path / "1", "--overlap", "0.95", "--train", 1000)
    drawn = [number[pair] for pairs in read(tmp_path / "1").values() for pair in pairs]
    assert {n % 5 for n in drawn} == {2, 3, 4}


def test_an_alignment_of_other_documents_is_refused(opus, tmp_path):
    path = opus / "OpenSubtitles.en-ru.xml.gz"
    text = gzip.decompress(path.read_bytes()).replace(b"en/1999/1/", b"en/1998/1/")
    path.write_bytes(gzip.compress(text))
    result = subtitles(opus, tmp_path / "1", check=False)
    assert result.returncode == 1
    assert "does not have the documents en/1999/1/37.xml.gz" in result.stderr


# --- words -------------------------------------------------------------------


def cut(folder, *options, source="de", target="en"):
    arguments = [folder / "text", folder / "words", source, target, *options]
    return tool("words", "cut", *arguments)


def test_words_are_cut_alike_by_one_worker_and_by_several(tmp_path):
    pairs = miniatures.Texts("de", "en").train * 30  # more than a worker takes at a time
    for side, language in enumerate(("de", "en")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (tmp_path / f"text.{language}").write_text(text, encoding="utf-8")
    cut(tmp_path)
    one = [(tmp_path / f"words.{x}").read_bytes() for x in ("de", "en")]
    cut(tmp_path, "--workers", 3)
    assert one == [(tmp_path / f"words.{x}").read_bytes() for x in ("de", "en")]
    assert len(lines(tmp_path / "words.en")) == len(pairs)


def test_long_and_empty_pairs_are_left_out_when_a_limit_is_given(tmp_path):
    (tmp_path / "text.de").write_text("Ja.\n\nEins zwei drei.\nNein.\n", encoding="utf-8")
    (tmp_path / "text.en").write_text("Yes.\nOne.\nOne two three.\nNo.\n", encoding="utf-8")
    result = cut(tmp_path, "--max-words", 3)
    assert lines(tmp_path / "words.en") == ["Yes .", "No ."]
    assert "2 pairs; left out 2 that are empty or longer than 3 words" in result.stdout
    cut(tmp_path)
    assert lines(tmp_path / "words.de") == ["Ja .", "", "Eins zwei drei .", "Nein ."]


def test_japanese_is_cut_into_short_units_whatever_its_length(tmp_path):
    sentence = "私は東京大学の学生です。"
    (tmp_path / "text.ja").write_text(f"{sentence}\n{sentence * 3000}\n", encoding="utf-8")
    (tmp_path / "text.en").write_text("a\nb\n", encoding="utf-8")
    cut(tmp_path, source="ja")
    short, long = lines(tmp_path / "words.ja")
    assert short == "私 は 東京 大学 の 学生 です 。"
    assert long.replace(" ", "") == sentence * 3000


def test_sides_whose_names_are_no_languages_are_cut_as_the_language_that_is_said(tmp_path):
    (tmp_path / "text.article").write_text("The U.S. said <t> no.\nB\n", encoding="utf-8")
    (tmp_path / "text.summary").write_text("<t> Don't! </t>\nb\n", encoding="utf-8")
    how = ["--speech", "en", "--keep", "<t>", "</t>"]
    sides = [tmp_path / "text", tmp_path / "words", "article", "summary"]
    tool("words", "cut", *sides, *how)
    assert lines(tmp_path / "words.article") == ["The U.S. said <t> no .", "B"]
    assert lines(tmp_path / "words.summary") == ["<t> Don 't ! </t>", "b"]
    tool("words", "cut", *sides, *how, "--first", 3, 2, "--lower")
    assert lines(tmp_path / "words.article") == ["the u.s. said", "b"]
    assert lines(tmp_path / "words.summary") == ["<t> don", "b"]


def test_merges_leave_words_whole_that_are_kept(tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\na b\n", encoding="utf-8")
    apply = ["bpe", "apply", "--codes", tmp_path / "codes"]
    assert "</t>" not in tool(*apply, text="</t>\n").stdout
    assert tool(*apply, "--keep", "<t>", "</t>", text="<t> abc </t>\n").stdout.split()[-1] == "</t>"


def test_cut_words_are_put_together_again():
    text = 'He said, "I don\'t (really) know: 3.5%!"'
    (words,) = tool_cut(text)
    assert words != text
    assert tool("words", "join", "en", text=f"{words}\n").stdout == f"{text}\n"


def tool_cut(text):
    sys.path.insert(0, str(TOOLS))
    try:
        import words
    finally:
        sys.path.remove(str(TOOLS))
    return [words.cutter("en")(text)]


# --- one text -----------------------------------------------------------------


def take_text(folder, content, **more):
    miniatures.write_zip(folder / "a.zip", {"x/a.tokens": content})
    return tool("corpora", "text", folder / "a.zip", "x/a.tokens", folder / "train.en", **more)


def test_a_text_is_taken_as_it_is_and_appended(tmp_path):
    content = " \n = A title = \n \n caf\u00e9 <unk> @-@ \u2028 . \n".encode()
    for _ in range(2):
        take_text(tmp_path, content)
    assert (tmp_path / "train.en").read_bytes() == 2 * content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "train.en"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine\n\xff\n", "line 2 of x/a.tokens is no UTF-8"),
        (b"cut sho", "x/a.tokens does not end with a line's end"),
    ],
)
def test_a_text_that_cannot_be_whole_is_refused(content, message, tmp_path):
    result = take_text(tmp_path, content, check=False)
    assert result.returncode == 1
    assert message in result.stderr
