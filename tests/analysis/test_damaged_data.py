"""``analyze``, ``ablate`` and training on data that is damaged: one sentence that names the file."""

import shutil
import struct

import numpy as np
import pytest
from fairseq import options

from fairseq_entmax import cli
from tests.commands import USER_DIR, as_command
from tests.damage import cut, garbled, sentence_of

HEADER = 26


def number(offset, form, value):
    """Puts a number at a place of a file; below 0 counts from the end."""

    def change(content):
        content = bytearray(content)
        place = offset if offset >= 0 else len(content) + offset
        struct.pack_into(form, content, place, value)
        return bytes(content)

    return change


def sizes(function):
    """Changes the numbers of tokens in an index, and leaves where they begin."""

    def change(content):
        count = struct.unpack_from("<Q", content, 18)[0]
        values = np.frombuffer(content, "<i4", count, HEADER).copy()
        function(values)
        return content[:HEADER] + values.tobytes() + content[HEADER + 4 * count :]

    return change


def lines(function):
    return lambda content: b"".join(function(content.splitlines(keepends=True)))


INDEX = {
    "missing": None,
    "empty": cut(0),
    "header-cut": lambda content: content[:12],
    "header-alone": lambda content: content[:HEADER],
    "half": cut(0.5),
    "last-byte-gone": lambda content: content[:-1],
    "a-byte-more": lambda content: content + b"\0",
    "magic": number(0, "<B", 0),
    "version": number(9, "<Q", 2),
    "type-0": number(17, "<B", 0),
    "type-of-float": number(17, "<B", 6),
    "type-of-8-bytes": number(17, "<B", 5),
    "type-of-1-byte": number(17, "<B", 1),
    "no-sentences": number(18, "<Q", 0),
    "one-sentence-fewer": number(18, "<Q", 7),
    "one-sentence-more": number(18, "<Q", 9),
    "sentences-beyond-all": number(18, "<Q", 2**63),
    "size-negative": number(HEADER, "<i", -5),
    "size-zero": number(HEADER, "<i", 0),
    "size-beyond-the-file": number(HEADER, "<i", 2**31 - 1),
    "sizes-swapped": sizes(lambda values: values.__setitem__(slice(0, 2), values[1::-1].copy())),
    "start-negative": number(-8, "<q", -8),
    "start-beyond-the-file": number(-8, "<q", 2**40),
    "start-shifted": number(-8, "<q", 4),
    "random": lambda content: garbled(9, 1.0)(content),
    "text": lambda content: b"no index\n" * 40,
    **{f"garbled-{seed}": garbled(seed, 0.03) for seed in range(3)},
}
DATA = {
    "missing": None,
    "empty": cut(0),
    "half": cut(0.5),
    "last-byte-gone": lambda content: content[:-1],
    "four-bytes-more": lambda content: content + b"\0\0\0\0",
    "token-beyond-the-dictionary": number(8, "<i", 24),
    "token-negative": number(8, "<i", -1),
    "random": garbled(9, 1.0),
    **{f"garbled-{seed}": garbled(seed, 0.1) for seed in range(2)},
}
DICTIONARY = {
    "missing": None,
    "binary": lambda content: bytes(range(256)),
    "latin-1": lambda content: content.replace(b"w3", b"\xe4"),
    "utf-16": lambda content: content.decode().encode("utf-16"),
    "a-word-twice": lines(lambda rows: [*rows, rows[0]]),
    "a-line-without-a-count": lines(lambda rows: [rows[0], b"word\n", *rows[1:]]),
    "an-empty-line": lines(lambda rows: [rows[0], b"\n", *rows[1:]]),
    "a-count-that-is-a-word": lines(lambda rows: [b"w0 many\n", *rows[1:]]),
    "a-count-with-a-point": lines(lambda rows: [b"w0 1.5\n", *rows[1:]]),
    "a-count-of-400-digits": lines(lambda rows: [b"w0 " + b"9" * 400 + b"\n", *rows[1:]]),
    "a-count-of-5000-digits": lines(lambda rows: [b"w0 " + b"9" * 5000 + b"\n", *rows[1:]]),
    "a-count-below-zero": lines(lambda rows: [b"w0 -4\n", *rows[1:]]),
}
# What leaves a dictionary that can be read, of another size than the model's
OTHER_SIZE = {
    "empty": cut(0),
    "half": lines(lambda rows: rows[: len(rows) // 2]),
    "a-line-more": lines(lambda rows: [*rows, b"more 1\n"]),
}
KINDS = [
    *(("valid.a-b.a.idx", name, change) for name, change in INDEX.items()),
    *(("valid.a-b.b.bin", name, change) for name, change in DATA.items()),
    *(("dict.b.txt", name, change) for name, change in DICTIONARY.items()),
]
IDS = [f"{file}-{name}" for file, name, _ in KINDS]


@pytest.fixture
def folder(tiny, tmp_path):
    return shutil.copytree(tiny / "bin", tmp_path / "bin")


def damage(path, change):
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))


def arguments_for(command, folder, tiny, output):
    more = {"ablate": ["--scores=loss", "--heads=cross:0.1"], "analyze": ["--measures=density"]}
    path = ["--path", tiny / "plain.pt", "--cpu", "--num-workers=0", "--log-format=none"]
    return [command, folder, *path, "--output", output / "out", *more[command]]


@pytest.mark.parametrize(("file", "name", "change"), KINDS, ids=IDS)
def test_damaged_data_is_refused_in_one_sentence(file, name, change, folder, tiny, capsys):
    damage(folder / file, change)
    said = sentence_of(arguments_for("analyze", folder, tiny, folder.parent), capsys)
    assert said.startswith("fairseq-entmax analyze: ")
    # Without the index fairseq sees no data at all
    assert str(folder if name == "missing" else (folder / file).with_suffix("")) in said
    assert len(said) < 900
    assert not (folder.parent / "out").exists()


@pytest.mark.parametrize("name", OTHER_SIZE)
def test_a_dictionary_of_another_size_does_not_fit_the_model(name, folder, tiny, capsys):
    damage(folder / "dict.b.txt", OTHER_SIZE[name])
    said = sentence_of(arguments_for("analyze", folder, tiny, folder.parent), capsys)
    assert said.startswith("fairseq-entmax analyze: ")
    assert "dictionary" in said


@pytest.mark.parametrize("place", [0, 12, 30, -1], ids=lambda place: f"{place}")
def test_ablate_refuses_damaged_data_too(place, folder, tiny, capsys):
    file, _, change = KINDS[place]
    damage(folder / file, change)
    said = sentence_of(arguments_for("ablate", folder, tiny, folder.parent), capsys)
    assert said.startswith("fairseq-entmax ablate: ")
    assert not (folder.parent / "out").exists()


@pytest.mark.parametrize("command", ["analyze", "ablate"])
def test_whole_data_is_taken(command, folder, tiny):
    arguments = arguments_for(command, folder, tiny, folder.parent)
    assert cli.main([str(argument) for argument in arguments]) == 0


def test_data_in_the_other_order_of_languages_is_checked(folder, tiny, capsys):
    for language in "ab":
        for form in ("idx", "bin"):
            name = f"valid.a-b.{language}.{form}"
            (folder / name).rename(folder / name.replace("a-b", "b-a"))
    languages = ["--source-lang=a", "--target-lang=b"]
    arguments = [*arguments_for("analyze", folder, tiny, folder.parent), *languages]
    damage(folder / "valid.b-a.b.bin", cut(0.5))
    assert "valid.b-a.b.bin is damaged" in sentence_of(arguments, capsys)


def test_another_number_of_sentences_on_one_side_is_refused(folder, tiny, capsys):
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

    from tests.support import random_sentences

    builder = MMapIndexedDatasetBuilder(str(folder / "valid.a-b.b.bin"), dtype=np.int32)
    for sentence in random_sentences([4, 5]):
        builder.add_item(sentence)
    builder.finalize(str(folder / "valid.a-b.b.idx"))
    said = sentence_of(arguments_for("analyze", folder, tiny, folder.parent), capsys)
    assert "valid.a-b.a.idx is of 8 and" in said
    assert "valid.a-b.b.idx is of 2 sentences" in said


def test_data_that_fairseq_wrote_in_its_older_form_is_read_and_checked(folder, tiny, capsys):
    from fairseq.data.indexed_dataset import IndexedDatasetBuilder

    from tests.support import random_sentences

    def write(side, sentences):
        builder = IndexedDatasetBuilder(str(folder / f"valid.a-b.{side}.bin"))
        for sentence in sentences:
            builder.add_item(sentence)
        builder.finalize(str(folder / f"valid.a-b.{side}.idx"))

    arguments = arguments_for("analyze", folder, tiny, folder.parent)
    for side in "ab":
        write(side, random_sentences([4, 5, 6]))
    assert cli.main([str(argument) for argument in arguments]) == 0
    write("b", [sentence + 20 for sentence in random_sentences([4, 5, 6])])
    said = sentence_of([*arguments, "--overwrite"], capsys)
    assert "sentence 0 of the target cannot be read" in said
    assert "it is empty, or has tokens that the dictionary has not" in said


# What is not there is left to fairseq, and tokens are not looked at
TRAINING = [
    (file, name, change)
    for file, name, change in KINDS
    if (name in ("missing", "empty", "half") if file.endswith("bin") else True)
    and not (name == "missing" and file.endswith("idx"))
]


@pytest.mark.parametrize(
    ("file", "name", "change"), TRAINING, ids=[f"{file}-{name}" for file, name, _ in TRAINING]
)
def test_training_refuses_damaged_data_when_its_options_are_read(
    file, name, change, folder, capsys, monkeypatch
):
    as_command(monkeypatch)
    damage(folder / file, change)
    parser = options.get_training_parser()
    given = [str(folder), f"--user-dir={USER_DIR}", "--arch=entmax_transformer", "--max-tokens=9"]
    with pytest.raises(SystemExit) as stop:
        options.parse_args_and_arch(parser, [*given, f"--save-dir={folder.parent / 'new'}"])
    assert stop.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("fairseq-train: error: ")
    assert str(folder / file).removesuffix(".bin").removesuffix(".idx") in said[-1]
