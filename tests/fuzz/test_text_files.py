"""Files of text changed at random: what reads them takes them, or says in one sentence what is wrong."""

from __future__ import annotations

import copy
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_entmax import data_bin
from fairseq_entmax.analysis.annotations.conllu import ConlluFile
from fairseq_entmax.models.head_record import read_record
from tests.fuzz.support import CODE, Outcome, attempt, check_sentence, entmax, examples

TOOLS = Path(__file__).parents[2] / "examples" / "tools"
PIECES = (
    *("", "_", "-", "-1", "0", "1-1", "8.1", "9-3", "1e400", "nan", "inf", "null", "\t", "\n\n"),
    *("\r\n", "\r", "\0", "\x85", "\u2028", "\ufeff", "é", "#", "#fairseq:overwrite", "[" * 2000),
    *('"', "'", "{", "}", "]", ",", "\\", "\\u0000", "\\ud800", "9" * 400, "9" * 5000, "٣"),
    *("x" * 3000, "a=b|NER=B-X", "<unk-0> 0", "<s> 1", "</script><script>", "../../up", *CODE),
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e300, 2**53, 2**63, 10**30, "", "x", "cross", "softmax"),
    *("1.5", [], {}, [[]], [None], [1, 2], {"0": []}, {"a": {"b": 1}}, "x" * 5000, [0] * 2000),
    *CODE,
)
# Not UTF-8, and the beginnings of a pickle, an archive and a compressed file
BINARY = (b"\xff\xfe", b"\x80\x04\x95", b"PK\x03\x04", b"\xfd7zXZ\x00", b"\x00" * 100)


@st.composite
def lines_changed(draw, content: bytes) -> bytes:
    """Lines left out, twice, swapped, cut; their parts replaced; bytes that are no text."""
    lines = content.decode().split("\n")
    for _ in range(draw(st.integers(1, 3))):
        how = draw(
            st.sampled_from(("part", "part", "part", "out", "twice", "swap", "insert", "cut"))
        )
        at = draw(st.integers(0, max(0, len(lines) - 1)))
        piece = draw(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)))
        if not lines:
            lines = [piece]
        elif how == "out":
            del lines[at]
        elif how == "twice":
            lines.insert(at, lines[at])
        elif how == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif how == "insert":
            lines.insert(at, piece)
        elif how == "cut":
            lines[at] = lines[at][: draw(st.integers(0, max(0, len(lines[at]) - 1)))]
            del lines[at + 1 :]
        else:
            separator = draw(st.sampled_from(("\t", " ", ",", '"')))
            parts = lines[at].split(separator)
            parts[draw(st.integers(0, len(parts) - 1))] = piece
            lines[at] = separator.join(parts)
    changed = "\n".join(lines).encode(errors="replace")
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(changed)))
        changed = changed[:place] + draw(st.sampled_from(BINARY)) + changed[place:]
    return changed


def places_of(value: Any) -> list[tuple[Any, Any]]:
    """Each container with each of its keys."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            found += places_of(value[key])
    return found


def value_changed(draw, document: Any) -> bytes:
    """Values of other kinds, left out, twice, or under other names; or another document."""
    if draw(st.integers(0, 11)) == 0:
        return json.dumps(draw(st.sampled_from(ODD_VALUES))).encode()
    document = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 2))):
        container, key = draw(st.sampled_from(places_of(document) or [(document, None)]))
        how = draw(st.sampled_from(("value", "value", "value", "out", "name", "of-another")))
        try:
            if how == "value":
                # A copy: the next change may be in it
                container[key] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
            elif how == "out":
                del container[key]
            elif how == "of-another":
                other, place = draw(st.sampled_from(places_of(document)))
                container[key] = json.loads(json.dumps(other[place]))
            elif isinstance(container, dict):
                container[draw(st.sampled_from((*PIECES, "0", "cross")))] = container.pop(key)
            else:
                container.append(container[key])
        except (KeyError, IndexError):  # of what the change before took away
            continue
    return json.dumps(document).encode(errors="replace")


@st.composite
def json_changed(draw, content: bytes) -> bytes:
    """A document, or each of its lines, with other values, and now and then no JSON."""
    if draw(st.integers(0, 2)) == 0:
        return draw(lines_changed(content))
    try:
        return value_changed(draw, json.loads(content))
    except ValueError:  # a document on each line
        lines = content.decode().splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    lines[at] = value_changed(draw, json.loads(lines[at])).decode()
    return ("\n".join(lines) + "\n").encode()


def words_said(change: bytes) -> list[str]:
    """What a sentence may quote."""
    return [*PIECES, *CODE]


def try_changed(
    place, name: str, change, command: Callable[[], Outcome], slice_of: int, new: str = "new"
) -> None:
    """Try a command on a file with changes; it neither changes it nor leaves anything of its own."""
    original = (place.folder / name).read_bytes()

    @examples(slice_of)
    @given(change(original))
    def tried(content):
        path = place.folder / name
        path.write_bytes(content)
        place.before = place.files()
        try:
            with place.entered():
                outcome = command()
            check_sentence(outcome, words_said(content))
            left = [path for path in place.files() if path not in place.before]
            if outcome.status:
                assert not [path for path in left if not path.endswith("/new")], left
            assert path.read_bytes() == content
        finally:
            for path in (place.folder / new, place.folder / f"{new}2"):
                shutil.rmtree(path, ignore_errors=True)
                path.unlink(missing_ok=True) if path.is_file() else None
            (place.folder / name).write_bytes(original)
        assert place.files() == {**place.before, **_digest_of(place, name)}

    tried()


def _digest_of(place, name):
    return {path: digest for path, digest in place.files().items() if path.endswith(f"here/{name}")}


def reading(read: Callable[[], Any]) -> Callable[[], Outcome]:
    """A reader as a command: its ValueError and OSError are the sentences that commands print."""

    def command() -> int:
        try:
            read()
        except (ValueError, OSError) as error:
            assert str(error).count("\n") == 0, str(error)  # noqa: PT017
            print(f"reader: {error}", file=sys.stderr)
            return 1
        return 0

    return lambda: attempt(command)


def test_parses_in_conllu(place):
    def read():
        parses = ConlluFile("parses.conllu")
        for number in range(len(parses)):
            assert len(parses[number].tokens) <= len(parses[number].words)

    try_changed(place, "parses.conllu", lines_changed, reading(read), 15)


def test_parses_that_do_not_fit_the_data(place):
    words = ["analyze", "bin", "--path=plain.pt", "--conllu=parses.conllu", "--measures=density"]
    words += ["--output=new", "--sentences=", "--cpu", "--num-workers=0"]
    try_changed(place, "parses.conllu", lines_changed, lambda: entmax(words), 2)


def test_dictionaries_of_data(place):
    def read():
        dictionary = data_bin.check_dictionary("bin/dict.a.txt")
        assert len(dictionary) >= dictionary.nspecial

    try_changed(place, "bin/dict.a.txt", lines_changed, reading(read), 15)


def test_dictionaries_with_markers(place):
    words = ["oov", "mark", "--source=source.txt", "--vocab=vocab.txt", "--output-source=new"]
    try_changed(place, "vocab.txt", lines_changed, lambda: entmax(words), 15)


def test_dictionaries_that_analyze_reads(place):
    words = ["analyze", "bin", "--path=plain.pt", "--measures=density", "--output=new"]
    words += ["--sentences=", "--cpu", "--num-workers=0"]
    try_changed(place, "bin/dict.b.txt", lines_changed, lambda: entmax(words), 3)


def test_generated_text(place):
    words = ["oov", "restore", "generated.txt", "--source=source.txt", "--vocab=vocab.txt"]
    words += ["--output=new"]
    try_changed(place, "generated.txt", lines_changed, lambda: entmax(words), 12)


def test_generated_text_that_is_scored(place):
    words = ["rouge", "generated.txt", "--reference=target.txt", "--bootstrap=9", "--output=new"]
    try_changed(place, "generated.txt", lines_changed, lambda: entmax(words), 3)


@pytest.mark.parametrize("change", [json_changed, lines_changed], ids=["values", "text"])
def test_analyses(change, place):
    words = ["report", "analysis.json", "--output=new"]
    try_changed(place, "analysis.json", change, lambda: entmax(words), 3)


def test_tables_of_pruning(place):
    words = ["report", "analysis.json", "--output=new", "--pruning=pruning.tsv"]
    try_changed(place, "pruning.tsv", lines_changed, lambda: entmax(words), 3)


def test_ablations(place):
    words = ["report", "analysis.json", "--output=new", "--ablation=ablated/ablation.json"]
    try_changed(place, "ablated/ablation.json", json_changed, lambda: entmax(words), 3)


def test_journals_of_ablations(place):
    words = ["ablate", "bin", "--path=plain.pt", "--output=ablated", "--heads=cross:0.1"]
    words += ["--scores=loss", "--cpu", "--num-workers=0"]
    name = "ablated/removals.jsonl"
    original = (place.folder / name).read_bytes()
    results = (place.folder / "ablated" / "ablation.json").read_bytes()

    @examples(3)
    @given(json_changed(original))
    def tried(content):
        (place.folder / name).write_bytes(content)
        with place.entered():
            outcome = entmax(words)
        check_sentence(outcome, words_said(content))
        after = (place.folder / name).read_bytes()
        # Where it is refused it stays as it is; else a removal that it lost was made again
        assert after == content or outcome.status == 0
        place.before = place.files()
        assert (place.folder / "ablated" / "ablation.json").read_bytes() == results or (
            outcome.status == 0
        )
        place.restore()

    tried()


@pytest.mark.parametrize("change", [json_changed, lines_changed], ids=["values", "text"])
def test_records_of_training(change, place):
    def read():
        for record in read_record(Path("alpha.jsonl")):
            assert record["update"] >= 0

    try_changed(place, "alpha.jsonl", change, reading(read), 15)


def test_records_of_training_that_analyze_reads(place):
    words = ["analyze", "bin", "--path=plain.pt", "--measures=density", "--output=new"]
    words += ["--sentences=", "--cpu", "--num-workers=0"]
    try_changed(place, "alpha.jsonl", json_changed, lambda: entmax(words), 2)
