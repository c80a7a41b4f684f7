"""Two files of one's own: what is refused, what is left out and counted, who is in which split."""

from __future__ import annotations

import pytest
from own_splits import main

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


# --- who is in which split ---------------------------------------------------


def test_every_pair_is_in_one_split_in_the_order_of_the_files_by_the_seed(tmp_path):
    pairs = plain(range(200))
    corpus(tmp_path, pairs)
    splits = split(tmp_path, "--valid", "20", "--test", "10")
    assert [len(found) for found in splits.values()] == [170, 20, 10]
    assert together(splits) == sorted(pairs)
    for name, found in splits.items():
        places = [pairs.index(pair) for pair in found]
        assert places == sorted(places)
        if name != "train":
            drawn = [int(line) for line in lines(tmp_path / "out" / f"{name}.line")]
            assert [place + 1 for place in places] == drawn
    assert split(tmp_path, "--valid", "20", "--test", "10") == splits
    assert split(tmp_path, "--seed", "2")["test"] != split(tmp_path)["test"]


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
    corpus(tmp_path, [*plain(range(50)), (text(60, "de").upper(), "new"), ("neu", text(70, "en"))])
    corpus(tmp_path, [*plain(range(60, 65)), *plain(range(70, 72))], "valid")
    corpus(tmp_path, plain(range(70, 75)), "test")
    given = ["--validpref", str(tmp_path / "valid"), "--testpref", str(tmp_path / "test")]
    splits = split(tmp_path, *given, "--max-ratio", "99")
    wanted = plain(range(50)), plain(range(60, 65)), plain(range(70, 75))
    assert tuple(splits.values()) == wanted
    said = capsys.readouterr().out
    assert "2 training pairs share a side with a pair of the validation or test" in said
    assert "left out 2 validation pairs that share a side with the test" in said
    kept = split(tmp_path, *given, "--max-ratio", "99", "--keep-overlap")
    assert (len(kept["train"]), len(kept["valid"])) == (52, 7)


def test_what_has_no_files_is_drawn_from_pairs_that_are_not_in_the_given_ones(tmp_path):
    corpus(tmp_path, plain(range(60)))
    corpus(tmp_path, plain(range(10)), "test")
    given = ["--testpref", str(tmp_path / "test"), "--valid", "30"]
    for options in (given, [*given, "--keep-overlap"]):
        splits = split(tmp_path, *options)
        assert not set(splits["valid"]) & set(splits["test"])
        assert len(splits["valid"]) == 30


# --- what is mended, left out and counted -------------------------------------


def test_what_is_left_out_is_counted_by_its_reason(tmp_path, capsys):
    odd = [
        ("", "nothing there"),
        ("nichts da", " \t "),
        ("wort " * 201, "word " * 10),
        ("lang " + "g" * 1500, "long " + "g" * 1400),
        ("kurz", "not short at all, but over ten times as long"),
        ("the same", "the same"),
    ]
    corpus(tmp_path, [*plain(range(60)), *odd])
    assert [pair for pair in together(split(tmp_path)) if pair in odd] == [odd[-1]]
    assert (
        "66 pairs, left out 5: 2 with an empty side, 1 longer than 200 words, 1 longer than 1500 "
        "characters, 1 one side over 10 times as long as the other" in capsys.readouterr().out
    )


def test_ends_of_lines_and_a_byte_order_mark_are_taken_away_and_letters_made_small(tmp_path):
    pairs = plain(range(60))
    pairs[3] = ("EINS\rzwei\u2028drei\x0bvier", "One two three four")
    corpus(tmp_path, pairs)
    path = tmp_path / "corpus.de"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    pairs[3] = ("EINS zwei drei vier", "One two three four")
    assert together(split(tmp_path)) == sorted(pairs)
    pairs[3] = ("eins zwei drei vier", "one two three four")
    assert together(split(tmp_path, "--lower")) == sorted(pairs)


def test_nothing_is_left_out_of_given_test_files(tmp_path):
    test = [("", "empty source"), ("x " * 250, "y " * 250), ("a", "b" * 100)]
    corpus(tmp_path, plain(range(60)))
    corpus(tmp_path, test, "test")
    found = split(tmp_path, "--testpref", str(tmp_path / "test"))["test"]
    assert found == [(a.strip(), b.strip()) for a, b in test]


# --- what is refused ---------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "german", "options", "message"),
    [
        (60, b"eins\n" * 59, [], "corpus.de has 59 lines and "),
        (60, b"", [], "is empty: give a text with a sentence a line"),
        (60, b"gut\n" * 59 + b"sch\xf6n\n", [], "is no UTF-8, in line 60 (byte 0xf6)"),
        (39, None, [], "39 pairs of"),
        (39, None, ["--valid", "20", "--test", "19"], "--valid 20 and --test 19 need more than 39"),
        (60, None, ["--testpref", "test"], "line 2 of test.de has 1,600 characters"),
    ],
)
def test_what_cannot_be_split_is_refused_in_a_sentence(
    pairs, german, options, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path, plain(range(pairs)))
    corpus(tmp_path, [("a b", "c d"), ("lang" * 400, "long")], "test")
    if german is not None:
        (tmp_path / "corpus.de").write_bytes(german)
    with pytest.raises(SystemExit):
        split(tmp_path, *options)
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
