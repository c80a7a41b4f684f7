"""examples/tools: sentences from archives, and words from sentences."""

import gzip

import corpora
import pytest
import words

from tests.examples import miniatures
from tests.examples.miniatures import lines


def tool(module, *arguments):
    module.main(list(map(str, arguments)))


def archived(folder, left, right, *options):
    """Write an archive with these two files, and return the arguments to extract their pairs."""
    miniatures.write_tar(folder / "a.tgz", {"x/c.aa": left, "x/c.bb": right})
    return ["pairs", folder / "a.tgz", "x/c.{lang}", "aa", "bb", folder / "train", *options]


@pytest.mark.parametrize(
    ("left", "right", "options", "expected"),
    [
        # only a newline ends a sentence
        (
            "one\rtwo\u2028three\x85four\x0bfive\n six \n",
            "A  b\nB\u00a0c\n",
            [],
            [["one two three four five", "six"], ["A b", "B c"]],
        ),
        # a test set loses nothing
        ("a\n\nc\n", "A\nB\n\n", ["--keep-empty"], [["a", "", "c"], ["A", "B", ""]]),
    ],
)
def test_pairs_are_appended_with_single_spaces(left, right, options, expected, tmp_path):
    for _ in range(2):
        tool(corpora, *archived(tmp_path, left.encode(), right.encode(), *options))
    assert [lines(tmp_path / f"train.{x}") for x in ("aa", "bb")] == [2 * x for x in expected]


def test_invalid_pairs_are_left_out_and_counted_or_refused(tmp_path, capsys, refusal):
    tool(corpora, *archived(tmp_path, b"a\n\nc\n\xff\n", b"A\nB\n \nD\n"))
    assert lines(tmp_path / "train.aa") == ["a"]
    output = capsys.readouterr().out
    assert "1 pairs; left out 2 with an empty side, 1 that are not UTF-8" in output
    arguments = archived(tmp_path, b"\xff\n", b"A\n", "--keep-empty")
    assert "sentence 1 of x/c.aa is not UTF-8" in refusal(tool, corpora, *arguments)
    arguments = archived(tmp_path, b"a\nb\nc\n", b"A\n")
    assert "x/c.aa and x/c.bb have 3 and 1 sentences" in refusal(tool, corpora, *arguments)


def test_one_file_with_both_languages_is_split_in_its_own_order(tmp_path):
    miniatures.write_tar(tmp_path / "a.tgz", {"w": b"B1 ||| A1\nno pair\nB2 ||| A2\n"})
    arguments = ["pairs", tmp_path / "a.tgz", "w", "aa", "bb", tmp_path / "train"]
    tool(corpora, *arguments, "--separator", "||| bb,aa")
    assert lines(tmp_path / "train.aa") == ["A1", "A2"]
    assert lines(tmp_path / "train.bb") == ["B1", "B2"]


def test_a_file_may_have_several_names_and_a_missing_one_is_reported(tmp_path, refusal):
    miniatures.write_tar(tmp_path / "a.tgz", {"x/new.aa": b"A\n", "README": b"", "x/c.bb": b"B\n"})
    arguments = ["pairs", tmp_path / "a.tgz", "x/c.{lang}|x/new.{lang}", "aa", "bb", tmp_path / "p"]
    tool(corpora, *arguments)
    assert (lines(tmp_path / "p.aa"), lines(tmp_path / "p.bb")) == (["A"], ["B"])
    arguments[2] = "x/b.{lang}"
    output = refusal(tool, corpora, *arguments)
    assert "no file x/b.aa, x/b.bb: this is a different archive; it has x/new.aa, x/c.bb" in output


def test_a_damaged_archive_leaves_no_text(tmp_path, refusal):
    arguments = archived(tmp_path, b"a\n" * 9000, b"A\n" * 9000)
    (tmp_path / "a.tgz").write_bytes((tmp_path / "a.tgz").read_bytes()[:-30])
    assert "a.tgz is cut short or damaged" in refusal(tool, corpora, *arguments)
    assert all(path.name == "a.tgz" or not path.read_bytes() for path in tmp_path.iterdir())


@pytest.fixture
def subtitles(tmp_path):
    """A function that draws subtitles with the given number of training pairs, and reads them."""
    miniatures.opensubtitles(tmp_path)
    archives = [tmp_path / f"OpenSubtitles.en-ru.{x}" for x in ("txt.zip", "xml.gz")]

    def drawn(train=100):
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        out.mkdir()
        tool(corpora, "subtitles", *archives, "en", "ru", out, train, 16, 12)
        return {
            name: list(zip(*(lines(out / f"{name}.{x}") for x in ("en", "ru")), strict=True))
            for name in ("train", "valid", "test")
        }

    return drawn


def test_subtitles_with_enough_overlap_are_drawn_reproducibly(subtitles):
    first = subtitles()
    assert first == subtitles()
    assert [len(pairs) for pairs in first.values()] == [100, 16, 12]
    texts = miniatures.Texts("en", "ru")
    number = {pair: n for n, pair in enumerate(texts.train + texts.valid + texts.test)}
    drawn = subtitles(1000).values()
    assert {number[pair] % 5 for pairs in drawn for pair in pairs} == {1, 2, 3, 4}


def test_an_alignment_of_other_documents_is_refused(subtitles, tmp_path, refusal):
    path = tmp_path / "OpenSubtitles.en-ru.xml.gz"
    text = gzip.decompress(path.read_bytes()).replace(b"en/1999/1/", b"en/1998/1/")
    path.write_bytes(gzip.compress(text))
    assert "does not have the documents en/1999/1/37.xml.gz" in refusal(subtitles)


def cut(folder, texts, *options):
    """The words of each side of a text."""
    for side, text in texts.items():
        (folder / f"text.{side}").write_text(text, encoding="utf-8")
    tool(words, folder / "text", folder / "words", *texts, *options)
    return [lines(folder / f"words.{side}") for side in texts]


def test_several_workers_cut_words_like_one(tmp_path):
    pairs = miniatures.Texts("de", "en").train * 30  # more than a worker takes at a time
    texts = {x: "".join(f"{pair[n]}\n" for pair in pairs) for n, x in enumerate(("de", "en"))}
    one = cut(tmp_path, texts)
    assert one == cut(tmp_path, texts, "--workers", 3)
    assert len(one[0]) == len(pairs)


def test_long_and_empty_pairs_are_left_out_only_with_a_limit(tmp_path, capsys):
    texts = {"de": "Ja.\n\nEins zwei drei.\nNein.\n", "en": "Yes.\nOne.\nOne two three.\nNo.\n"}
    assert cut(tmp_path, texts, "--max-words", 3)[1] == ["Yes .", "No ."]
    assert "left out 2 that are empty or longer than 3 words" in capsys.readouterr().out
    assert cut(tmp_path, texts)[0] == ["Ja .", "", "Eins zwei drei .", "Nein ."]


def test_sides_without_a_language_code_are_cut_in_the_given_language(tmp_path):
    texts = {"article": "The U.S. said <t> no.\nB\n", "summary": "<t> Don't! </t>\nb\n"}
    how = ["--speech", "en", "--keep", "<t>", "</t>"]
    whole = [["The U.S. said <t> no .", "B"], ["<t> Don 't ! </t>", "b"]]
    assert cut(tmp_path, texts, *how) == whole
    shorter = cut(tmp_path, texts, *how, "--first", 3, 2, "--lower")
    assert shorter == [["the u.s. said", "b"], ["<t> don", "b"]]
