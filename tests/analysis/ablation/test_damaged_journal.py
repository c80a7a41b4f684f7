"""``ablate`` on a journal that is damaged: one sentence that names the file, which stays as it is."""

import json
import math
import os
import shutil

import pytest

from fairseq_entmax.analysis.ablation.journal import Journal
from fairseq_entmax.analysis.ablation.removal import SentenceScores
from tests.damage import cut, garbled, sentence_of

NAME = "removals.jsonl"


def arguments_for(tiny, output):
    options = ("--scores=loss", "--heads=cross:0.1,1.0", "--num-workers=0", "--log-format=none")
    return [
        "ablate",
        tiny / "bin",
        "--path",
        tiny / "plain.pt",
        "--cpu",
        "--output",
        output,
        *options,
    ]


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    """A folder with a finished ablation: a header and three removals."""
    from fairseq_entmax import cli

    output = tmp_path_factory.mktemp("finished") / "out"
    assert cli.main([str(argument) for argument in arguments_for(tiny, output)]) == 0
    return output


@pytest.fixture
def output(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "out")


def line(number, change):
    """Changes one line as JSON."""

    def changed(content):
        lines = content.splitlines(keepends=True)
        value = change(json.loads(lines[number]))
        lines[number] = json.dumps(value).encode() + b"\n"
        return b"".join(lines)

    return changed


def raw_line(number, text):
    def changed(content):
        lines = content.splitlines(keepends=True)
        lines[number] = text(lines[number]) if callable(text) else text
        return b"".join(lines)

    return changed


def field(number, name, value):
    def change(entry):
        return {**entry, name: value(entry[name]) if callable(value) else value}

    return line(number, change)


def without(number, name):
    return line(number, lambda entry: {key: entry[key] for key in entry if key != name})


def setting(name, value):
    return field(0, "settings", lambda settings: {**settings, name: value})


def first(value):
    return lambda values: [value, *values[1:]]


KINDS = {
    # The header
    "header-empty-line": raw_line(0, b"\n"),
    "header-not-json": raw_line(0, b"removals\n"),
    "header-a-list": line(0, lambda entry: [entry]),
    "header-null": line(0, lambda entry: None),
    "header-of-another-version": field(0, "version", 2),
    "header-version-nan": field(0, "version", float("nan")),
    "header-without-settings": without(0, "settings"),
    "header-settings-a-list": field(0, "settings", [1, 2]),
    "header-settings-a-text": field(0, "settings", "scores"),
    "header-gone": raw_line(0, b""),
    "header-twice": raw_line(0, lambda text: text + text),
    "header-of-other-settings": setting("checkpoint_sha256", "0"),
    "header-of-long-settings": setting("checkpoint_sha256", "0" * 100_000),
    "header-of-many-settings": field(0, "settings", lambda _: {str(n): n for n in range(5000)}),
    "header-of-nested-settings": raw_line(
        0, lambda text: text.replace(b'"scores": ', b'"a": ' + b"[" * 900 + b"]" * 900 + b', "scores": ')
    ),
    # A removal
    "a-list": line(1, lambda entry: [1, 2]),
    "null": line(2, lambda entry: None),
    "a-number": line(2, lambda entry: 5),
    "a-text": line(2, lambda entry: "heads nll translations"),
    "without-heads": without(2, "heads"),
    "without-nll": without(2, "nll"),
    "without-translations": without(2, "translations"),
    "heads-null": field(2, "heads", None),
    "heads-a-number": field(2, "heads", 3),
    "heads-a-text": field(2, "heads", "cross:0.1"),
    "heads-of-lists": field(2, "heads", [["cross:0.1"]]),
    "heads-of-objects": field(2, "heads", [{"a": 1}]),
    "heads-unknown": field(2, "heads", ["somewhere:0.1"]),
    "nll-null": field(1, "nll", None),
    "nll-a-text": field(2, "nll", "1.5"),
    "nll-a-number": field(2, "nll", 1.5),
    "nll-empty": field(2, "nll", []),
    "nll-short": field(2, "nll", lambda values: values[:-1]),
    "nll-long": field(2, "nll", lambda values: [*values, 1.0]),
    "nll-of-texts": field(2, "nll", first("1.5")),
    "nll-of-nulls": field(2, "nll", first(None)),
    "nll-of-lists": field(2, "nll", first([1.5])),
    "nll-nan": field(2, "nll", first(float("nan"))),
    "nll-infinite": field(2, "nll", first(float("inf"))),
    "nll-beyond-floats": raw_line(2, lambda text: text.replace(b'"nll": [', b'"nll": [1e999, ')),
    "nll-of-400-digits": field(2, "nll", first(10**400)),
    "nll-of-5000-digits": raw_line(2, lambda text: text.replace(b"[", b"[" + b"9" * 5000 + b", ", 2)),
    "translations-not-asked-for": field(2, "translations", ["a"] * 8),
    "translations-a-number": field(2, "translations", 3),
    "removal-twice-with-other-scores": raw_line(2, lambda text: text + text.replace(b'"nll": [', b'"nll": [1')),
    "removal-nested": raw_line(2, b"[" * 100_000 + b"]" * 100_000 + b"\n"),
    # The file
    "binary": lambda content: bytes(range(256)) * 8,
    "binary-without-a-line": lambda content: b"\x80\x02}q\x00" * 50,
    "a-text-without-a-line": lambda content: b"my notes",
    "not-utf-8": raw_line(2, lambda text: text.replace(b"cross", b"\xe4ross")),
    "zeros-in-the-middle": raw_line(2, lambda text: bytes(len(text) - 1) + b"\n"),
    "first-half-gone": lambda content: content[len(content) // 2 :],
    "lines-joined": lambda content: content.replace(b"\n", b" ", 2),
    **{f"garbled-{seed}": garbled(seed, 0.05) for seed in range(4)},
}  # fmt: skip


# Read by the command itself; to load the model for each of them would take a minute
BY_THE_COMMAND = (
    "header-settings-a-list",
    "null",
    "without-nll",
    "nll-nan",
    "binary-without-a-line",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_journal_is_refused_with_its_name_and_left_as_it_is(kind, finished, output):
    journal = output / NAME
    with (finished / NAME).open() as file:
        settings = json.loads(file.readline())["settings"]
    damaged = KINDS[kind](journal.read_bytes())
    journal.write_bytes(damaged)
    with pytest.raises(
        ValueError, match=f"{journal} (is damaged|was not written|has scores)"
    ) as error:
        Journal(str(journal), settings, sentences=8)
    assert len(str(error.value)) < 2500
    assert "\n" not in str(error.value)
    assert journal.read_bytes() == damaged


@pytest.mark.parametrize("kind", BY_THE_COMMAND)
def test_the_command_says_in_one_sentence_what_is_damaged(kind, tiny, output, capsys):
    journal = output / NAME
    damaged = KINDS[kind](journal.read_bytes())
    journal.write_bytes(damaged)
    said = sentence_of(arguments_for(tiny, output), capsys)
    assert said.startswith("fairseq-entmax ablate: ")
    assert str(journal) in said
    assert journal.read_bytes() == damaged


@pytest.mark.parametrize("make", ["folder", "pipe", "link-to-itself", "link-to-nowhere"])
def test_what_is_no_journal_file_is_refused(make, tmp_path):
    journal = tmp_path / NAME
    if make == "folder":
        journal.mkdir()
    elif make == "pipe":
        os.mkfifo(journal)
    else:
        journal.symlink_to(NAME if make == "link-to-itself" else "nowhere")
    with pytest.raises(ValueError, match=f"{journal} is no ordinary file: choose another --output"):
        Journal(str(journal), {}, overwrite=True)


def test_a_loss_that_is_no_number_is_not_kept(tmp_path):
    scores = SentenceScores([1.0, math.nan], None)
    with Journal(str(tmp_path / NAME), {}) as journal:
        with pytest.raises(
            ValueError, match=r"without cross:0\.1 the loss of the sentence in place 1"
        ):
            journal.add(("cross:0.1",), scores)
        assert journal.finished == {}


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_a_journal_that_is_cut_short_is_gone_on_with(share, tiny, output, capsys):
    from fairseq_entmax import cli

    journal, results = output / NAME, output / "ablation.json"
    whole, expected = journal.read_bytes(), results.read_bytes()
    journal.write_bytes(cut(share)(whole))
    assert cli.main([str(argument) for argument in arguments_for(tiny, output)]) == 0
    assert json.loads(results.read_bytes()) == json.loads(expected)
    assert len(journal.read_bytes()) == len(whole)


def test_a_removal_that_is_there_twice_is_taken_once(tiny, output):
    from fairseq_entmax import cli

    journal, results = output / NAME, output / "ablation.json"
    expected = results.read_bytes()
    journal.write_bytes(raw_line(2, lambda text: text + text)(journal.read_bytes()))
    assert cli.main([str(argument) for argument in arguments_for(tiny, output)]) == 0
    assert results.read_bytes() == expected
