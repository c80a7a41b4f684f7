"""Text files with random changes: a command reads them, or says in one line what is wrong."""

import copy
import json
import shutil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.support import CODE, check_sentence, examples

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
# Not UTF-8, and the first bytes of a pickle, an archive and a compressed file
BINARY = (b"\xff\xfe", b"\x80\x04\x95", b"PK\x03\x04", b"\xfd7zXZ\x00", b"\x00" * 100)
SMALL = ["--cpu", "--num-workers=0"]
ANALYZE = ["analyze", "bin", "--path=plain.pt", "--measures=density", "--output=new", *SMALL]
ABLATE = ["ablate", "bin", "--path=plain.pt", "--output=ablated"]
ABLATED = ["--heads=cross:0.1", "--scores=loss"]
MARKED = ["--source=source.txt", "--vocab=vocab.txt"]
RESTORE = ["oov", "restore", "generated.txt"]
ROUGE = ["rouge", "generated.txt", "--reference=target.txt"]
REPORT = ["report", "analysis.json", "--output=new"]


@st.composite
def lines_changed(draw, content: bytes) -> bytes:
    """Lines dropped, doubled or truncated, their parts replaced, and bytes that are not text."""
    lines = content.decode().split("\n")
    for _ in range(draw(st.integers(1, 3))):
        how = draw(st.sampled_from(("part", "part", "part", "out", "twice", "cut")))
        at = draw(st.integers(0, len(lines) - 1))
        if how == "out":
            lines[at : at + 1] = [""] if len(lines) == 1 else []
        elif how == "twice":
            lines.insert(draw(st.integers(0, at)), lines[at])
        elif how == "cut":
            lines[at:] = [lines[at][: draw(st.integers(0, len(lines[at])))]]
        else:
            separator = draw(st.sampled_from(("\t", " ", ",", '"')))
            parts = lines[at].split(separator)
            piece = draw(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)))
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
    """A value replaced, dropped, renamed, or copied from another place."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        container, key = draw(st.sampled_from(places_of(document) or [([None], 0)]))
        how = draw(st.sampled_from(("value", "value", "value", "out", "name", "of-another")))
        if how == "value":
            # A copy, as the next change may modify it
            container[key] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
        elif how == "of-another":
            other, place = draw(st.sampled_from(places_of(document) or [([None], 0)]))
            container[key] = copy.deepcopy(other[place])
        elif how == "name" and isinstance(container, dict):
            container[draw(st.sampled_from((*PIECES, "0", "cross")))] = container.pop(key)
        else:
            del container[key]
    return json.dumps(document).encode(errors="replace")


@st.composite
def json_changed(draw, content: bytes) -> bytes:
    """A document, or one of its lines, with changed values; sometimes the result is no JSON."""
    if draw(st.integers(0, 2)) == 0:
        return draw(lines_changed(content))
    try:
        return value_changed(draw, json.loads(content))
    except ValueError:  # one document per line
        lines = content.decode().splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    lines[at] = value_changed(draw, json.loads(lines[at])).decode()
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize(
    ("name", "change", "words", "slice_of"),
    [
        ("parses.conllu", lines_changed, [*ANALYZE, "--conllu=parses.conllu", "--sentences="], 2),
        ("bin/dict.b.txt", lines_changed, [*ANALYZE, "--sentences="], 3),
        ("alpha.jsonl", json_changed, [*ANALYZE, "--sentences="], 2),
        ("analysis.json", json_changed, REPORT, 6),
        ("pruning.tsv", lines_changed, [*REPORT, "--pruning=pruning.tsv"], 3),
        ("ablated/ablation.json", json_changed, [*REPORT, "--ablation=ablated/ablation.json"], 3),
        ("ablated/removals.jsonl", json_changed, [*ABLATE, *ABLATED, *SMALL], 3),
        ("vocab.txt", lines_changed, ["oov", "mark", *MARKED, "--output-source=new"], 15),
        ("generated.txt", lines_changed, [*RESTORE, *MARKED, "--output=new"], 12),
        ("generated.txt", lines_changed, [*ROUGE, "--bootstrap=9", "--output=new"], 3),
    ],
)
def test_a_command_reads_a_changed_file_or_says_what_is_wrong(place, name, change, words, slice_of):
    path = place.folder / name
    # ablate may continue its own journal
    is_journal = path.parent.name == "ablated" and words[0] == "ablate"

    @examples(slice_of)
    @given(change(path.read_bytes()))
    def tried(content):
        path.write_bytes(content)
        place.before = place.files()
        outcome = place.run(words)
        check_sentence(outcome, (*PIECES, *CODE))
        if outcome.status == 0:
            shutil.rmtree(place.folder / "new", ignore_errors=True)
            (place.folder / "new").unlink(missing_ok=True)
        if outcome.status or not is_journal:
            assert path.read_bytes() == content
        place.check(outcome, ["ablated"] if is_journal else [])
        place.restore()

    tried()
