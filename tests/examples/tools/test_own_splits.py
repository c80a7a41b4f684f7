"""Two files of one's own: what is refused, what is mended and counted, who is in which split."""

from __future__ import annotations

import pytest
from own_splits import main

LANGUAGES = ["de", "en"]


def text(number, language):
    return f"{language} sentence {number} , as long as others"


def corpus(folder, pairs, stem="corpus"):
    for side, language in enumerate(LANGUAGES):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{stem}.{language}").write_bytes(lines.encode())


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


def lines(path):
    return path.read_bytes().decode().split("\n")[:-1]


def together(splits):
    return [pair for found in splits.values() for pair in found]


def refusal(capsys, folder, *options, status=2):
    with pytest.raises(SystemExit) as ended:
        split(folder, *options)
    assert ended.value.code == status
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "Traceback" not in message
    return message


# --- who is in which split ---------------------------------------------------


def test_every_pair_is_in_one_split_and_in_the_order_of_the_files(tmp_path):
    pairs = plain(range(200))
    corpus(tmp_path, pairs)
    splits = split(tmp_path, "--valid", "20", "--test", "10")
    assert [len(splits[name]) for name in ("train", "valid", "test")] == [170, 20, 10]
    for name, found in splits.items():
        places = [pairs.index(pair) for pair in found]
        assert places == sorted(places)
        if name != "train":
            drawn = [int(line) for line in lines(tmp_path / "out" / f"{name}.line")]
            assert [place + 1 for place in places] == drawn
    assert sorted(pair for found in splits.values() for pair in found) == sorted(pairs)


def test_the_same_seed_draws_the_same_and_another_others(tmp_path):
    corpus(tmp_path, plain(range(200)))
    first, second = split(tmp_path), split(tmp_path)
    assert first == second
    assert split(tmp_path, "--seed", "2")["test"] != first["test"]


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
    assert splits["train"] == plain(range(50))
    assert splits["valid"] == plain(range(60, 65))
    assert splits["test"] == plain(range(70, 75))
    said = capsys.readouterr().out
    assert "2 training pairs share a side with a pair of the validation or test: left out" in said
    assert "left out 2 validation pairs that share a side with the test" in said
    kept = split(tmp_path, *given, "--max-ratio", "99", "--keep-overlap")
    assert len(kept["train"]) == 52
    assert len(kept["valid"]) == 7


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
    splits = split(tmp_path)
    assert [pair for found in splits.values() for pair in found if pair in odd] == [odd[-1]]
    said = capsys.readouterr().out
    assert (
        "66 pairs, left out 5: 2 with an empty side, 1 longer than 200 words, 1 longer than 1500 "
        "characters, 1 one side over 10 times as long as the other" in said
    )
    assert "pairs with the same text on both sides, which are kept: 1" in said


def test_carriage_returns_and_a_byte_order_mark_are_taken_away_and_said(tmp_path, capsys):
    corpus(tmp_path, plain(range(60)))
    path = tmp_path / "corpus.de"
    plain_text = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + plain_text.replace(b"\n", b"\r\n"))
    splits = split(tmp_path)
    assert sorted(together(splits)) == sorted(plain(range(60)))
    said = capsys.readouterr().out
    assert "60 lines of corpus.de end with CR LF" in said
    assert "corpus.de begins with a byte order mark: left away" in said


def test_other_marks_of_a_line_end_stay_within_their_line(tmp_path):
    pairs = plain(range(60))
    pairs[3] = ("eins\rzwei\u2028drei\x0bvier", "one two three four")
    corpus(tmp_path, pairs)
    splits = split(tmp_path)
    assert ("eins zwei drei vier", "one two three four") in together(splits)


def test_small_letters_are_of_all_splits_and_it_is_said_what_scores_are_then(tmp_path, capsys):
    corpus(tmp_path, [(f"ÄBC {n} x", f"Abc {n} X") for n in range(60)])
    splits = split(tmp_path, "--lower")
    assert all(side == side.lower() for found in splits.values() for pair in found for side in pair)
    assert "scores are of small letters" in capsys.readouterr().out


def test_nothing_is_left_out_of_given_test_files(tmp_path):
    test = [("", "empty source"), ("x " * 250, "y " * 250), ("a", "b" * 100)]
    corpus(tmp_path, plain(range(60)))
    corpus(tmp_path, test, "test")
    found = split(tmp_path, "--testpref", str(tmp_path / "test"))["test"]
    assert found == [(a.strip(), b.strip()) for a, b in test]


# --- what is refused ---------------------------------------------------------


def test_files_of_different_numbers_of_lines_are_refused_with_both(tmp_path, capsys):
    corpus(tmp_path, plain(range(60)))
    with (tmp_path / "corpus.en").open("a") as file:
        file.write("one more\n")
    message = refusal(capsys, tmp_path)
    assert f"{tmp_path}/corpus.de has 60 lines and {tmp_path}/corpus.en 61" in message
    assert "line N of one has to be the translation of line N of the other" in message


def test_one_file_twice_is_refused(tmp_path, capsys):
    corpus(tmp_path, plain(range(60)))
    (tmp_path / "corpus.en").unlink()
    (tmp_path / "corpus.en").symlink_to(tmp_path / "corpus.de")
    assert "name the same file" in refusal(capsys, tmp_path)
    (tmp_path / "corpus.en").unlink()
    (tmp_path / "corpus.en").write_bytes((tmp_path / "corpus.de").read_bytes())
    assert "hold the same text" in refusal(capsys, tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: give a text with a sentence a line"),
        (b"\x1f\x8b\x08\x00rest", "is an archive of gzip: unpack it"),
        ("Ein Satz\n".encode("utf-16"), "is in UTF-16: convert it by 'iconv -f UTF-16 -t UTF-8"),
        (b"eins\rzwei\rdrei", "end with CR alone: convert them by \"tr '\\r' '\\n'"),
        (b"gut\n" * 59 + "schön\n".encode("latin-1"), "is no UTF-8, in line 60 (byte 0xf6)"),
    ],
    ids=["empty", "gzip", "utf-16", "cr", "latin-1"],
)
def test_a_file_that_is_no_text_is_refused_with_the_remedy(content, message, tmp_path, capsys):
    corpus(tmp_path, plain(range(60)))
    (tmp_path / "corpus.de").write_bytes(content)
    assert message in refusal(capsys, tmp_path)


def test_too_few_pairs_to_draw_from_are_refused(tmp_path, capsys):
    corpus(tmp_path, plain(range(39)))
    assert "39 pairs of" in refusal(capsys, tmp_path)
    message = refusal(capsys, tmp_path, "--valid", "20", "--test", "19")
    assert "--valid 20 and --test 19 need more than 39 pairs" in message
    assert "there are 39 of them" in message


def test_a_test_line_that_no_model_takes_is_refused_by_its_number(tmp_path, capsys):
    corpus(tmp_path, plain(range(60)))
    corpus(tmp_path, [("a b", "c d"), ("lang" * 400, "long")], "test")
    message = refusal(capsys, tmp_path, "--testpref", str(tmp_path / "test"))
    assert f"line 2 of {tmp_path}/test.de has 1,600 characters" in message
    assert "--max-characters" in message
