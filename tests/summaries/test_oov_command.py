"""The command oov as it is used: a dictionary, marked texts, restored summaries."""

import re

import pytest

from fairseq_entmax.cli import main
from tests.summaries.texts import printed, refused, written

# the 0-word "zebra" is unknown in sentence 0, "emu" and "zebra" in sentence 1
SOURCE = "the cat saw zebra\nthe emu saw a zebra\nthe cat\n"
TARGET = "zebra saw\nzebra emu gnu\ncat\n"
DICT = "the 9\ncat 5\nsaw 5\na 1\n<unk-0> 0\n<unk-1> 0\n"
GENERATED = printed(
    {
        0: ("the cat saw <unk-0>", "<unk-0> saw", "the <unk-0> saw <unk-1>"),
        1: ("the <unk-0> saw a <unk-1>", "<unk-1> <unk-0> <<unk>>", "<unk-1> saw", "<unk-0> saw"),
        2: ("the cat", "cat", "the cat"),
    },
    order=[2, 0, 1],
)


@pytest.fixture
def files(tmp_path):
    return written(
        tmp_path, source=SOURCE, target=TARGET, dict=DICT, generated=GENERATED, two="a\nb\n"
    )


def restore(files, output, *options, generated="generated"):
    words = ["oov", "restore", files[generated], "--source", files["source"]]
    return main([*words, "--vocab", files["dict"], "--output", str(output), *options])


def test_a_dictionary_is_counted_over_all_texts(files, tmp_path, capsys):
    output = tmp_path / "new"
    words = ["oov", "vocabulary", "--text", files["source"], files["target"], "--words", "3"]
    assert main([*words, "--markers", "2", "--output", str(output)]) == 0
    assert output.read_text() == "zebra 4\ncat 3\nsaw 3\n<unk-0> 0\n<unk-1> 0\n"
    assert "3 of 7 words (58.82% of the text) and 2 markers" in capsys.readouterr().out


def test_source_and_target_are_marked_together(files, tmp_path, capsys):
    outputs = tmp_path / "s", tmp_path / "t"
    words = ["oov", "mark", "--source", files["source"], "--target", files["target"]]
    words += ["--vocab", files["dict"], "--output-source", str(outputs[0])]
    assert main([*words, "--output-target", str(outputs[1])]) == 0
    assert outputs[0].read_text() == "the cat saw <unk-0>\nthe <unk-0> saw a <unk-1>\nthe cat\n"
    assert outputs[1].read_text() == "<unk-0> saw\n<unk-1> <unk-0> gnu\ncat\n"
    assert capsys.readouterr().out.splitlines() == [
        "source: 3 sentences, 11 words, 3 (27.27%) not in the vocabulary, 3 of these with a marker",
        "target: 3 sentences, 6 words, 4 (66.67%) not in the vocabulary, 3 of these with a marker",
    ]
    again = refused(capsys, *words, "--output-target", outputs[1])
    assert "--output-source got" in again
    assert "which exists: give another name, or --overwrite" in again
    assert main([*words, "--output-target", str(outputs[1]), "--overwrite"]) == 0


def test_summaries_are_restored_in_the_order_of_the_source(files, tmp_path, capsys):
    assert restore(files, tmp_path / "out", "--as", "text") == 0
    assert (tmp_path / "out").read_text() == "the zebra saw <unk>\nzebra saw\nthe cat\n"
    told = capsys.readouterr()
    assert told.err == (
        "fairseq-entmax oov restore: 1 of 3 markers, in 1 sentences, stand for no word of their "
        "source, and are written as <unk>\n"
    )
    assert told.out.startswith("2 words restored in 3 sentences")


def test_the_output_of_fairseq_generate_is_restored_line_by_line(files, tmp_path):
    assert restore(files, tmp_path / "out") == 0
    expected = printed(
        {
            0: ("the cat saw zebra", "zebra saw", "the zebra saw <unk>"),
            1: ("the emu saw a zebra", "zebra emu <<unk>>", "zebra saw", "emu saw"),
            2: ("the cat", "cat", "the cat"),
        },
        order=[2, 0, 1],
    )
    assert (tmp_path / "out").read_text() == expected


def test_generated_text_without_its_sources_is_restored_with_a_word_on_it(files, tmp_path, capsys):
    bare = "".join(line for line in GENERATED.splitlines(True) if not line.startswith("S-"))
    files["bare"] = written(tmp_path, bare=bare)["bare"]
    assert restore(files, tmp_path / "bare.out", generated="bare") == 0
    assert "has no lines S-…, so whether --source" in capsys.readouterr().err
    assert restore(files, tmp_path / "whole.out") == 0
    assert "S-…" not in capsys.readouterr().err


def test_a_source_that_fairseq_cut_keeps_its_words(files, tmp_path):
    cut = GENERATED.replace("S-1\tthe <unk-0> saw a <unk-1>", "S-1\tthe <unk-0>")
    files |= written(tmp_path, cut=cut)
    assert restore(files, tmp_path / "out", "--as=text", generated="cut") == 0
    assert (tmp_path / "out").read_text().splitlines()[1] == "zebra saw"


def test_markers_of_words_that_were_cut_off_stand_for_nothing(files, tmp_path, capsys):
    cut = GENERATED.replace("S-1\tthe <unk-0> saw a <unk-1>", "S-1\tthe <unk-0>")
    cut = cut.replace("S-0\tthe cat saw <unk-0>", "S-0\tthe cat")
    files |= written(tmp_path, cut=cut)
    assert restore(files, tmp_path / "out", "--as=text", "--cut-source=2", generated="cut") == 0
    assert (tmp_path / "out").read_text() == "the <unk> saw <unk>\n<unk> saw\nthe cat\n"
    assert "3 of 3 markers, in 2 sentences" in capsys.readouterr().err


def test_a_source_put_together_by_a_tokenizer_is_still_the_source(files, tmp_path):
    source = SOURCE.replace("the cat\n", "the cat &apos;s saw .\n")
    joined = GENERATED.replace("S-2\tthe cat\n", "S-2\tthe cat's saw.\n")
    dictionary = DICT.replace("a 1\n", "a 1\n&apos;s 1\n. 1\n")
    files |= written(tmp_path, source=source, joined=joined, dict=dictionary)
    assert restore(files, tmp_path / "out", generated="joined") == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": "the cat saw a\n" + SOURCE[SOURCE.index("\n") + 1 :]}, "S-0 of .* not line 1"),
        ({"source": "".join(reversed(SOURCE.splitlines(keepends=True)))}, "S-0 of .* not line 1"),
        ({"source": SOURCE + "one more\n"}, "no hypothesis of 1 of the 4 .*3, counted from 0"),
        ({"source": "the cat saw zebra\n"}, "has 1 lines, and .* has sentence 2"),
        ({"source": SOURCE.replace("emu", "<unk-3>")}, "line 2 of .* has the word <unk-3>"),
        ({"dict": DICT.replace("<unk-0> 0\n<unk-1> 0\n", "")}, "--vocab .* has no markers"),
        ({"dict": DICT.replace("cat 5\n", "")}, "S-0 of .* with the markers of --vocab"),
        ({"dict": DICT.replace("<unk-1> 0\n", "")}, "with the markers of --vocab|has 1 markers"),
        ({"generated": "a text\n"}, "it is no output of fairseq-generate"),
    ],
)
def test_restoring_from_what_does_not_belong_together_is_one_sentence(
    files, tmp_path, capsys, changed, message
):
    files |= written(tmp_path, **changed)
    words = ["oov", "restore", files["generated"], "--source", files["source"]]
    words += ["--vocab", files["dict"], "--output", str(tmp_path / "out")]
    assert re.search(message, refused(capsys, *words))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "{two}", "--output-target", "{t}"], "has 3 lines and --target .* has 2"),
        (["--target", "{target}"], "--target and --output-target go together"),
        (["--target", "{target}", "--output-target", "{s}"], "are both .*: give two names"),
        (["--cut-source", "0"], "--cut-source got 0: give 1 or more"),
        (["--cut-target", "5"], "--cut-target 5 needs --target FILE"),
        (["--output-source", "{source}", "--overwrite"], "is the source, and would be replaced"),
        (["--source", "{t}"], "there is no file"),
        (["--output-source", "{s}/in/none"], "there is no folder"),
        (["--vocab", "{source}"], "line 1 is not 'word count'"),
    ],
)
def test_marking_what_does_not_belong_together_is_one_sentence(
    files, tmp_path, capsys, options, message
):
    names = {**files, "s": tmp_path / "s", "t": tmp_path / "t"}
    words = ["oov", "mark", "--source", files["source"], "--vocab", files["dict"]]
    words += ["--output-source", str(tmp_path / "s")]
    error = refused(capsys, *words, *(option.format(**names) for option in options))
    assert re.search(message, error), error
    assert not list(tmp_path.glob("[st]"))


def test_a_text_with_a_marker_in_it_cannot_be_counted_or_marked(files, tmp_path, capsys):
    files |= written(tmp_path, source="a b\nb <unk-3>\n")
    output = ["--output", str(tmp_path / "o")]
    words = ["oov", "vocabulary", "--text", files["source"], "--words=2", "--markers=2"]
    assert "line 2 of" in refused(capsys, *words, *output)
    words = ["oov", "mark", "--source", files["source"], "--vocab", files["dict"]]
    error = refused(capsys, *words, "--output-source", tmp_path / "o")
    assert "has the word <unk-3>, which means a marker: give the text before it was marked" in error
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("option", ["--words=0", "--markers=-1"])
def test_a_number_below_its_least_is_one_sentence(files, tmp_path, capsys, option):
    words = ["oov", "vocabulary", "--text", files["source"], "--words=2", "--markers=2"]
    error = refused(capsys, *words, "--output", tmp_path / "o", option)
    assert f"{option.partition('=')[0]} got" in error
