"""examples/tools: sentences out of archives, and words out of sentences."""

from __future__ import annotations

import gzip
import io
import sys

import bpe
import corpora
import pytest
import words

from tests.examples import miniatures
from tests.examples.miniatures import lines


def tool(module, *arguments):
    module.main(list(map(str, arguments)))


def refusal(capsys, module, *arguments):
    with pytest.raises(SystemExit) as ended:
        tool(module, *arguments)
    assert ended.value.code == 1
    return capsys.readouterr().err


def archived(folder, left, right, *options):
    """An archive with these two files, and the arguments that take pairs out of it."""
    miniatures.write_tar(folder / "a.tgz", {"x/c.aa": left, "x/c.bb": right})
    return ["pairs", folder / "a.tgz", "x/c.{lang}", "aa", "bb", folder / "train", *options]


@pytest.mark.parametrize(
    ("left", "right", "options", "expected"),
    [
        ("a  b\n c\u00a0d \n", "A\nB\n", [], [["a b", "c d"], ["A", "B"]]),
        # only a newline ends a sentence
        (
            "one\rtwo\u2028three\x85four\x0bfive\nsix\n",
            "A\nB\n",
            [],
            [["one two three four five", "six"], ["A", "B"]],
        ),
        # a test set loses nothing
        ("a\n\nc\n", "A\nB\n\n", ["--keep-empty"], [["a", "", "c"], ["A", "B", ""]]),
    ],
)
def test_pairs_are_added_to_what_is_there_with_single_spaces(
    left, right, options, expected, tmp_path
):
    for _ in range(2):
        tool(corpora, *archived(tmp_path, left.encode(), right.encode(), *options))
    assert [lines(tmp_path / f"train.{x}") for x in ("aa", "bb")] == [2 * x for x in expected]


def test_pairs_with_an_empty_side_or_other_bytes_are_left_out_and_counted(tmp_path, capsys):
    tool(corpora, *archived(tmp_path, b"a\n\nc\n\xff\n", b"A\nB\n \nD\n"))
    assert lines(tmp_path / "train.aa") == ["a"]
    said = capsys.readouterr().out
    assert "1 pairs; left out 2 with an empty side, 1 that are no UTF-8" in said


@pytest.mark.parametrize(
    ("left", "options", "message"),
    [
        (b"\xff\n", ["--keep-empty"], "sentence 1 of x/c.aa is no UTF-8"),
        (b"a\nb\nc\n", [], "x/c.aa and x/c.bb have 3 and 1 sentences\n"),
    ],
)
def test_files_that_do_not_fit_are_refused(left, options, message, tmp_path, capsys):
    assert message in refusal(capsys, corpora, *archived(tmp_path, left, b"A\n", *options))


def test_one_file_with_both_languages_is_split_in_its_own_order(tmp_path):
    miniatures.write_tar(tmp_path / "a.tgz", {"w": b"B1 ||| A1\nno pair\nB2 ||| A2\n"})
    arguments = ["pairs", tmp_path / "a.tgz", "w", "aa", "bb", tmp_path / "train"]
    tool(corpora, *arguments, "--separator", "||| bb,aa")
    assert lines(tmp_path / "train.aa") == ["A1", "A2"]
    assert lines(tmp_path / "train.bb") == ["B1", "B2"]


def test_nothing_is_left_where_an_archive_is_damaged(tmp_path, capsys):
    arguments = archived(tmp_path, b"a\n" * 9000, b"A\n" * 9000)
    (tmp_path / "a.tgz").write_bytes((tmp_path / "a.tgz").read_bytes()[:-30])
    assert "a.tgz is cut short or damaged" in refusal(capsys, corpora, *arguments)
    assert all(path.name == "a.tgz" or not path.read_bytes() for path in tmp_path.iterdir())


# --- subtitles ---------------------------------------------------------------


def subtitles(folder, out, *options):
    out.mkdir()
    archives = [folder / "OpenSubtitles.en-ru.txt.zip", folder / "OpenSubtitles.en-ru.xml.gz"]
    numbers = ["--train", 100, "--valid", 16, "--test", 12, *options]
    return ["subtitles", *archives, "en", "ru", out, *numbers]


@pytest.fixture
def opus(tmp_path):
    folder = tmp_path / "opus"
    folder.mkdir()
    miniatures.opensubtitles(folder)
    return folder


def read(out):
    return {
        name: list(zip(lines(out / f"{name}.en"), lines(out / f"{name}.ru"), strict=True))
        for name in ("train", "valid", "test")
    }


def test_the_seed_alone_draws_the_subtitles(opus, tmp_path):
    drawn = []
    for number, options in enumerate(([], [], ["--seed", 2])):
        tool(corpora, *subtitles(opus, tmp_path / f"{number}", *options))
        drawn.append(read(tmp_path / f"{number}"))
    assert drawn[0] == drawn[1]
    assert [len(pairs) for pairs in drawn[0].values()] == [100, 16, 12]
    assert drawn[0]["train"] != drawn[2]["train"]


def test_the_least_overlap_can_be_chosen(opus, tmp_path):
    texts = miniatures.Texts("en", "ru")
    number = {pair: n for n, pair in enumerate(texts.train + texts.valid + texts.test)}
    tool(corpora, *subtitles(opus, tmp_path / "1", "--overlap", "0.95", "--train", 1000))
    drawn = [number[pair] for pairs in read(tmp_path / "1").values() for pair in pairs]
    assert {n % 5 for n in drawn} == {2, 3, 4}


def test_an_alignment_of_other_documents_is_refused(opus, tmp_path, capsys):
    path = opus / "OpenSubtitles.en-ru.xml.gz"
    text = gzip.decompress(path.read_bytes()).replace(b"en/1999/1/", b"en/1998/1/")
    path.write_bytes(gzip.compress(text))
    said = refusal(capsys, corpora, *subtitles(opus, tmp_path / "1"))
    assert "does not have the documents en/1999/1/37.xml.gz" in said


# --- words -------------------------------------------------------------------


def cut(folder, texts, *options):
    """The words of the sides of a text."""
    for side, text in texts.items():
        (folder / f"text.{side}").write_text(text, encoding="utf-8")
    tool(words, "cut", folder / "text", folder / "words", *texts, *options)
    return [lines(folder / f"words.{side}") for side in texts]


def test_words_are_cut_alike_by_one_worker_and_by_several(tmp_path):
    pairs = miniatures.Texts("de", "en").train * 30  # more than a worker takes at a time
    texts = {x: "".join(f"{pair[n]}\n" for pair in pairs) for n, x in enumerate(("de", "en"))}
    one = cut(tmp_path, texts)
    assert one == cut(tmp_path, texts, "--workers", 3)
    assert len(one[0]) == len(pairs)


def test_long_and_empty_pairs_are_left_out_when_a_limit_is_given(tmp_path, capsys):
    texts = {"de": "Ja.\n\nEins zwei drei.\nNein.\n", "en": "Yes.\nOne.\nOne two three.\nNo.\n"}
    assert cut(tmp_path, texts, "--max-words", 3)[1] == ["Yes .", "No ."]
    said = capsys.readouterr().out
    assert "2 pairs; left out 2 that are empty or longer than 3 words" in said
    assert cut(tmp_path, texts)[0] == ["Ja .", "", "Eins zwei drei .", "Nein ."]


def test_japanese_is_cut_into_short_units_whatever_its_length(tmp_path):
    sentence = "私は東京大学の学生です。"
    texts = {"ja": f"{sentence}\n{sentence * 3000}\n", "en": "a\nb\n"}
    (short, long), _ = cut(tmp_path, texts)
    assert short == "私 は 東京 大学 の 学生 です 。"
    assert long.replace(" ", "") == sentence * 3000


def test_sides_whose_names_are_no_languages_are_cut_as_the_language_that_is_said(tmp_path):
    texts = {"article": "The U.S. said <t> no.\nB\n", "summary": "<t> Don't! </t>\nb\n"}
    how = ["--speech", "en", "--keep", "<t>", "</t>"]
    assert cut(tmp_path, texts, *how) == [
        ["The U.S. said <t> no .", "B"],
        ["<t> Don 't ! </t>", "b"],
    ]
    shorter = cut(tmp_path, texts, *how, "--first", 3, 2, "--lower")
    assert shorter == [["the u.s. said", "b"], ["<t> don", "b"]]


def test_merges_leave_words_whole_that_are_kept(tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\na b\n", encoding="utf-8")
    for keep in ((), ("<t>", "</t>")):
        (cut,) = bpe.apply(tmp_path / "codes", iter(["<t> abc </t>"]), 1, keep)
        assert (cut.split()[-1] == "</t>") == bool(keep)


def test_cut_words_are_put_together_again(monkeypatch, capsysbinary):
    text = 'He said, "I don\'t (really) know: 3.5%!"'
    cut = words.cutter("en")(text)
    assert cut != text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{cut}\n".encode())))
    tool(words, "join", "en")
    assert capsysbinary.readouterr().out == f"{text}\n".encode()


# --- one text -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (" \n = A title = \n \n caf\u00e9 <unk> @-@ \u2028 . \n".encode(), None),
        (b"fine\n\xff\n", "line 2 of x/a.tokens is no UTF-8"),
        (b"cut sho", "x/a.tokens does not end with a line's end"),
    ],
)
def test_a_text_is_taken_as_it_is_or_refused(content, message, tmp_path, capsys):
    miniatures.write_zip(tmp_path / "a.zip", {"x/a.tokens": content})
    arguments = ["text", tmp_path / "a.zip", "x/a.tokens", tmp_path / "train.en"]
    if message:
        assert message in refusal(capsys, corpora, *arguments)
        return
    for _ in range(2):
        tool(corpora, *arguments)
    assert (tmp_path / "train.en").read_bytes() == 2 * content
