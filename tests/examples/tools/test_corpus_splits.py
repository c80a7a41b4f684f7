"""Splitting a user's two files: what is refused, what is left out and counted, and the splits."""

import pytest
from corpus_splits import main

from tests.examples.miniatures import lines

LANGUAGES = ["de", "en"]


def corpus(folder, pairs, stem="corpus"):
    for side, language in enumerate(LANGUAGES):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{stem}.{language}").write_bytes(text.encode())


def text(number, language):
    return f"{language} sentence {number} , as long as others"


def plain(numbers):
    return [(text(number, "de"), text(number, "en")) for number in numbers]


def split(folder, *options, stem="corpus"):
    out = folder / "out"
    out.mkdir(exist_ok=True)
    main([str(out), "--trainpref", str(folder / stem), "--languages", *LANGUAGES, *options])
    return {
        name: list(zip(*(lines(out / f"{name}.{language}") for language in LANGUAGES), strict=True))
        for name in ("train", "valid", "test")
    }


def together(splits):
    return sorted(pair for found in splits.values() for pair in found)


def test_every_pair_is_in_one_split_in_the_order_of_the_files(tmp_path):
    pairs = plain(range(200))
    corpus(tmp_path, pairs)
    splits = split(tmp_path, "--valid", "20", "--test", "10")
    assert [len(found) for found in splits.values()] == [170, 20, 10]
    assert together(splits) == sorted(pairs)
    for found in splits.values():
        places = [pairs.index(pair) for pair in found]
        assert places == sorted(places)
    assert split(tmp_path, "--valid", "20", "--test", "10") == splits


@pytest.mark.parametrize(("pairs", "drawn"), [(200, 10), (21_000, 1000)])
def test_a_twentieth_is_drawn_up_to_a_thousand(pairs, drawn, tmp_path):
    corpus(tmp_path, plain(range(pairs)))
    splits = split(tmp_path)
    assert len(splits["valid"]) == len(splits["test"]) == drawn


def test_pairs_that_share_a_side_are_never_drawn_whatever_case_and_spacing(tmp_path):
    same_source = [(text(0, "de"), text(number, "en")) for number in range(20)]
    same_target = [(text(100 + n, "de"), "En   Sentence 3 , AS long as others") for n in range(20)]
    corpus(tmp_path, [*same_source, *same_target, *plain(range(200, 240))])
    splits = split(tmp_path, "--valid", "19", "--test", "20")
    assert set(splits["valid"] + splits["test"]) < set(plain(range(200, 240)))
    assert len(splits["train"]) == 41


def test_training_pairs_that_share_a_side_with_given_files_are_left_out(tmp_path, capsys):
    sharing = [(text(60, "de").upper(), "new one"), ("neuer Satz", text(7, "x"))]
    corpus(tmp_path, [*plain(range(50)), *sharing])
    corpus(tmp_path, [*plain(range(60, 65)), *plain(range(70, 72))], "valid")
    corpus(tmp_path, [*plain(range(70, 75)), ("anderer Satz", text(7, "x"))], "test")
    given = ["--validpref", str(tmp_path / "valid"), "--testpref", str(tmp_path / "test")]
    splits = split(tmp_path, *given)
    wanted = plain(range(50)), plain(range(60, 65)), plain(range(70, 75))
    assert (splits["train"], splits["valid"], splits["test"][:-1]) == wanted
    output = capsys.readouterr().out
    assert "train: left out 2 pairs that share a side with test or valid" in output
    assert "valid: left out 2 pairs that share a side with test\n" in output


def test_splits_without_files_are_drawn_from_pairs_outside_the_given_ones(tmp_path):
    corpus(tmp_path, plain(range(60)))
    corpus(tmp_path, plain(range(10)), "test")
    splits = split(tmp_path, "--testpref", str(tmp_path / "test"), "--valid", "30")
    assert not set(splits["valid"]) & set(splits["test"])
    assert (len(splits["valid"]), len(splits["train"])) == (30, 20)


def test_pairs_are_left_out_and_counted_by_reason_except_test_pairs(tmp_path, capsys):
    odd = [
        ("", "nothing there"),
        ("nichts da", " \t "),
        ("wort " * 201, "word " * 100),
        ("lang " + "g" * 1000, "long " + "g" * 900),
        ("kurz", "not short at all, but over ten times as long"),
        ("the same", "the same"),
    ]
    corpus(tmp_path, [*plain(range(60)), *odd])
    assert [pair for pair in together(split(tmp_path)) if pair in odd] == [odd[-1]]
    output = capsys.readouterr().out
    for number, reason in (
        (2, "with an empty side"),
        (2, "longer than 200 words or 1,000 characters"),
        (1, "with one side over 10 times as long as the other"),
    ):
        assert f"train: left out {number} of 66 pairs, {reason}" in output
    test = [("", "empty source"), ("x " * 250, "y " * 250), ("a", "b" * 100)]
    corpus(tmp_path, test, "test")
    found = split(tmp_path, "--testpref", str(tmp_path / "test"))["test"]
    assert found == [(a.strip(), b.strip()) for a, b in test]


def test_line_ends_and_a_byte_order_mark_are_removed_and_letters_lowered(tmp_path):
    pairs = plain(range(60))
    pairs[3] = ("EINS\rzwei\u2028drei\x0bvier", "One two three four")
    corpus(tmp_path, pairs)
    path = tmp_path / "corpus.de"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    pairs[3] = ("EINS zwei drei vier", "One two three four")
    assert together(split(tmp_path)) == sorted(pairs)
    pairs[3] = ("eins zwei drei vier", "one two three four")
    assert together(split(tmp_path, "--lower")) == sorted(pairs)


@pytest.mark.parametrize(
    ("pairs", "german", "options", "message"),
    [
        (60, b"eins\n" * 59, [], "corpus.de has 59 lines and "),
        (60, b"gut\n" * 59 + b"sch\xf6n\n", [], "is not UTF-8, in line 60: unpack it"),
        (19, None, [], "of 19 pairs, 19 can be drawn"),
        (39, None, ["--valid", "20", "--test", "19"], "20 for valid and 19 for test are wanted"),
        (60, None, ["--testpref", "test"], "test.de or test.en has a line of more than 1,000"),
        (60, None, ["--test", "9", "--testpref", "test"], "--test and --testpref exclude"),
        (60, None, ["--validpref", "nowhere"], "No such file or directory: nowhere.de"),
    ],
)
def test_unusable_files_are_refused_in_one_line(
    pairs, german, options, message, tmp_path, refusal, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path, plain(range(pairs)))
    corpus(tmp_path, [("a b", "c d"), ("lang" * 400, "long")], "test")
    if german is not None:
        (tmp_path / "corpus.de").write_bytes(german)
    output = refusal(split, tmp_path, *options)
    assert message in output
    assert output.count("\n") == 1
