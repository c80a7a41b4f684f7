"""Markers: how words get them and are restored, compared with a brute force of the definition."""

import random
import re

import pytest
from fairseq.data import Dictionary

from fairseq_entmax.cli import main
from fairseq_entmax.summaries import oov
from fairseq_entmax.summaries.oov import Vocabulary, read_vocabulary
from tests.summaries.texts import printed, written

# "zebra" is unknown in sentence 0, "emu" and "zebra" in sentence 1
SOURCE = "the cat saw zebra\nthe emu saw a zebra\nthe cat\n"
TARGET = "zebra saw\nzebra emu gnu\ncat\n"
DICT = "the 9\ncat 5\nsaw 5\na 1\n<unk-0> 0\n<unk-1> 0\n"
KNOWN = {"the", "cat", "saw", "a", *oov.SPECIAL}
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


def mark(files, tmp_path, *options):
    words = ["oov", "mark", "--source", files["source"], "--target", files["target"]]
    outputs = [tmp_path / "s", tmp_path / "t"]
    words += ["--vocab", files["dict"], "--output-source", str(outputs[0])]
    assert main([*words, "--output-target", str(outputs[1]), "--overwrite", *options]) == 0
    return [[line.split() for line in path.read_text().splitlines()] for path in outputs]


def restore_words(files, tmp_path, *options):
    words = ["oov", "restore", files["generated"], "--source", files["source"]]
    return [*words, "--vocab", files["dict"], "--output", str(tmp_path / "out"), *options]


def brute_force(source, target, markers):
    """The definition, one word at a time, by searching the whole source each time."""

    def marked(word):
        seen = []
        for other in source:
            if other not in KNOWN and other not in seen:
                seen.append(other)
        place = seen.index(word) if word in seen else None
        if word in KNOWN or place is None or place >= markers:
            return word
        return f"<unk-{place}>"

    return [marked(word) for word in source], [marked(word) for word in target]


def test_random_texts_are_marked_by_the_definition(tmp_path, capsys):
    chance = random.Random(1)
    words = [*sorted(KNOWN), *(f"new{n}" for n in range(8))]
    pairs = [[chance.choices(words, k=chance.randrange(12)) for _ in "st"] for _ in range(100)]
    texts = ["".join(f"{' '.join(pair[side])}\n" for pair in pairs) for side in range(2)]
    files = written(tmp_path, source=texts[0], target=texts[1], dict=DICT)
    mark(files, tmp_path)
    counted = capsys.readouterr().out
    unknown = [sum(word not in KNOWN for pair in pairs for word in pair[side]) for side in (0, 1)]
    assert [int(number) for number in re.findall(r"words, (\d+) \(", counted)] == unknown
    for cut in (None, 1, 4):
        options = [] if cut is None else [f"--cut-source={cut}", "--cut-target=5"]
        expected = [brute_force(one[:cut], other[: 5 if cut else None], 2) for one, other in pairs]
        assert mark(files, tmp_path, *options) == [*map(list, zip(*expected, strict=True))]


def test_the_dictionary_has_the_most_frequent_words_and_fairseq_reads_it(tmp_path, capsys, refused):
    files = written(tmp_path, one="b <unk> a <s> c\nc rare\n", two="c b a\n")
    output = str(tmp_path / "dict")
    words = ["oov", "vocabulary", "--text", files["one"], files["two"], "--words=3", "--markers=2"]
    words += ["--output", output]
    assert main(words) == 0
    assert "3 of 4 words (87.50% of the text) and 2 markers" in capsys.readouterr().out
    symbols = Dictionary.load(output).symbols
    assert symbols[4:] == ["c", "a", "b", "<unk-0>", "<unk-1>"]
    assert read_vocabulary(output) == Vocabulary(oov.SPECIAL | {"a", "b", "c"}, 2)
    assert "which exists: give another name, or --over" in refused(main, words)


@pytest.mark.parametrize(
    "dictionary",
    [
        *("a 1\nb 1\n", "", "a 1\n<unk-0> 0\nb 1\n", "a 1\n<unk-1> 0\n", "<unk-0> 0\n<unk-0> 0\n"),
        *("a text\n<unk-0> 0\n", "a 1\n\n<unk-0> 0\n"),
    ],
)
def test_a_dictionary_without_markers_at_its_end_is_refused(tmp_path, dictionary):
    path = written(tmp_path, dict=dictionary)["dict"]
    with pytest.raises(ValueError, match="is not a dictionary that ends with the markers"):
        read_vocabulary(path)


def test_the_output_of_fairseq_generate_is_restored_line_by_line(files, tmp_path, capsys):
    assert main(restore_words(files, tmp_path)) == 0
    expected = printed(
        {
            0: ("the cat saw zebra", "zebra saw", "the zebra saw <unk>"),
            1: ("the emu saw a zebra", "zebra emu <<unk>>", "zebra saw", "emu saw"),
            2: ("the cat", "cat", "the cat"),
        },
        order=[2, 0, 1],
    )
    assert (tmp_path / "out").read_text() == expected
    output = capsys.readouterr()
    assert "1 of 4 markers stand for no word of their source" in output.err
    assert output.out.startswith("3 words restored")
    bare = "".join(line for line in GENERATED.splitlines(True) if not line.startswith("S-"))
    files |= written(tmp_path, generated=bare)
    assert main(restore_words(files, tmp_path, "--overwrite")) == 0
    assert "has no lines S-…, so it could not be checked" in capsys.readouterr().err


def test_only_words_that_marking_has_seen_are_restored(files, tmp_path):
    cut = GENERATED.replace("S-1\tthe <unk-0> saw a <unk-1>", "S-1\tthe <unk-0>")
    cut = cut.replace("S-0\tthe cat saw <unk-0>", "S-0\tthe cat")
    files |= written(tmp_path, generated=cut)
    for options, hypotheses in (
        ([], ["the cat", "the zebra saw <unk>", "zebra saw", "emu saw"]),
        (["--cut-source=2"], ["the cat", "the <unk> saw <unk>", "<unk> saw", "emu saw"]),
    ):
        assert main(restore_words(files, tmp_path, "--overwrite", *options)) == 0
        lines = (tmp_path / "out").read_text().splitlines()
        assert [one.split("\t")[2] for one in lines if one.startswith("H-")] == hypotheses


def test_a_detokenised_source_is_recognised(files, tmp_path):
    files |= written(
        tmp_path,
        source=SOURCE.replace("the cat\n", "the cat &apos;s saw .\n"),
        generated=GENERATED.replace("S-2\tthe cat\n", "S-2\tthe cat's saw.\n"),
        dict=DICT.replace("a 1\n", "a 1\n&apos;s 1\n. 1\n"),
    )
    assert main(restore_words(files, tmp_path)) == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": SOURCE.replace("saw zebra", "saw a")}, "S-0 of .* not line 1"),
        ({"source": "".join(reversed(SOURCE.splitlines(keepends=True)))}, "S-0 of .* not line 1"),
        ({"source": "x\ny\n"}, "has 2 lines, but .* has sentence 2"),
        ({"source": SOURCE.replace("emu", "<unk-3>")}, "line 2 of .* has the word <unk-3>"),
        ({"dict": DICT.replace("cat 5\n", "")}, "S-2 of .* with the markers of --vocab"),
        ({"dict": DICT.replace("<unk-1> 0\n", "")}, "S-1 of .* with the markers of --vocab"),
        ({"generated": "a text\n"}, "it is not output of fairseq-generate"),
    ],
)
def test_restoring_unrelated_files_is_refused_in_a_line(files, tmp_path, refused, changed, message):
    files |= written(tmp_path, **changed)
    assert re.search(message, refused(main, restore_words(files, tmp_path)))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "{two}", "--output-target", "{t}"], "two has 2 lines, but its"),
        (["--source", "{two}", "--target", "{target}", "--output-target", "{t}"], "two has 2 li"),
        (["--target", "{target}"], "--target and --output-target go together"),
        (["--cut-target", "3"], "--cut-target 3 cuts no --target"),
        (["--cut-source", "0"], "--cut-source got 0: give 1 or more"),
        (["--output-source", "{source}", "--overwrite"], "is the source, and would be replaced"),
        (["--target", "{source}", "--output-target", "{s}"], "is the output of --output-source"),
        (["--source", "{t}"], "No such file"),
        (["--source", "{marked}"], "line 2 of .* has the word <unk-3>, which is a marker"),
    ],
)
def test_marking_unrelated_files_gives_a_one_line_error(files, tmp_path, refused, options, message):
    files |= written(tmp_path, marked="a\nb <unk-3>\nc")
    names = {**files, "t": tmp_path / "t", "s": tmp_path / "s"}
    words = ["oov", "mark", "--source", files["source"], "--vocab", files["dict"]]
    words += ["--output-source", str(tmp_path / "s")]
    error = refused(main, [*words, *(option.format(**names) for option in options)])
    assert re.search(message, error), error
    assert not list(tmp_path.glob("[st]"))
