"""``report`` on an ``analysis.json`` that is damaged, or made to harm: one sentence, and little memory."""

import base64
import json
import math
import resource
import struct
import subprocess
import sys
import textwrap
import tracemalloc
import zlib

import numpy as np
import pytest

from fairseq_entmax.analysis import document, maps
from tests.analysis.report.synthetic import synthetic_analysis
from tests.damage import cut, garbled, sentence_of

NAME = "analysis.json"


def small():
    return synthetic_analysis(models=2, layers=2, heads=2, sentences=2, length=6)


def packed(content):
    return base64.b64encode(zlib.compress(content, 9)).decode()


def deep(number):
    """Nested lists as text, in a place where anything may stand."""
    return "[" * number + "]" * number


def change(*path, value):
    """Puts a value somewhere into an analysis."""

    def changed(analysis):
        place = analysis
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value
        return json.dumps(analysis).encode()

    return changed


def text(old, new):
    """Puts a text in place of another one, where JSON could not be written."""
    return lambda analysis: json.dumps(analysis).replace(old, new, 1).encode()


def raw(function):
    return lambda analysis: function(json.dumps(analysis).encode())


MAP = ("maps", 0, "models", 0, 0)
WEIGHTS = (*MAP, "weights")
LAYER = ("models", 0, "attentions", 0)
HEAD = (*LAYER, "heads", 0)
RECORD = ("models", 0, "records")


def much(tokens, heads):
    """As many tokens and heads as the weights say that there are."""

    def changed(analysis):
        entry = analysis["maps"][0]
        words = ["w"] * tokens
        entry.update(source=words, queries=words, targets=words)
        for number, model in enumerate(analysis["models"]):
            for layer in model["attentions"]:
                head = layer["heads"][0]
                layer["heads"] = [{**head, "head": index} for index in range(heads)]
            for one in entry["models"][number]:
                one["shape"] = [heads, tokens, tokens]
        return json.dumps(analysis).encode()

    return changed


KINDS = {
    "empty": raw(cut(0)),
    "half": raw(cut(0.5)),
    "last-byte-gone": raw(lambda content: content[:-1]),
    **{f"garbled-{seed}": raw(garbled(seed)) for seed in range(4)},
    "binary": raw(lambda content: bytes(range(256)) * 8),
    "latin-1": raw(lambda content: content.replace(b"a", b"\xe4", 1)),
    "utf-16": raw(lambda content: content.decode().encode("utf-16")),
    "nested-lists": raw(lambda content: deep(100_000).encode()),
    "nested-objects": raw(lambda content: b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "nested-in-place": text('"path": "', f'"path": {deep(600)}, "was": "'),
    "nested-in-a-record": text('"records": ', f'"records": {deep(5000)}, "was": '),
    "number-beyond-floats": text('"loss": ', '"loss": 1e400, "was": '),
    "minus-beyond-floats": text('"entropy": ', '"entropy": -1e400, "was": '),
    "number-of-5000-digits": text('"parameters": ', f'"parameters": {"9" * 5000}, "was": '),
    "number-of-400-digits": text('"parameters": ', f'"parameters": {"9" * 400}, "was": '),
    "layer-beyond-all": change(*LAYER, "layer", value=10**15),
    "head-beyond-all": change(*HEAD, "head", value=10**15),
    "head-twice": change(*LAYER, "heads", value=lambda heads: [heads[0], heads[0]]),
    "layer-twice": change(*LAYER[:-1], value=lambda rows: [*rows, rows[0]]),
    "mapping-no-text": change(*LAYER, "mapping", value=7),
    "number-twice": change("numbers", value=lambda rows: [*rows, rows[0]]),
    "number-elsewhere": change("numbers", 0, "place", value=["offsets"]),
    "number-without-place": change("numbers", 0, "place", value=[]),
    "histogram-short": change(*HEAD, "density_histogram", value=[1]),
    "record-layer-beyond-all": change(
        *RECORD, value={"alpha": [{"update": 0, "values": {"cross": {"9" * 5000: [1.5]}}}]}
    ),
    "chosen-without-lengths": change("chosen", value={"by": "typical"}),
    "chosen-by-lengths-that-fall": change(
        "chosen", value={"by": "typical", "lengths": [9, 8, 7, 6, 5]}
    ),
    "error-below-0": change(*HEAD, "standard_errors", value={"relevance": -1}),
    "sentences-in-words": change("models", 0, "importance_sentences", value={"relevance": "all"}),
    "bomb": change(*WEIGHTS, value=lambda _: packed(bytes(1 << 28))),
    "bomb-of-bombs": change(*WEIGHTS, value=lambda _: packed(zlib.compress(bytes(1 << 24)))),
    "shape-beyond-all": change(*MAP, "shape", value=[2, 10**9, 10**9]),
    "shape-of-other-heads": change(*MAP, "shape", 0, value=10**9),
    "shape-that-overflows": change(*MAP, "shape", value=[2**40, 2**40, 2**40]),
    "as-many-tokens-as-bytes": much(20_000, 1),
    "as-many-heads-as-bytes": much(2_000, 50),
    "weights-short": change(*WEIGHTS, value=lambda _: packed(b"12")),
    "weights-long": change(*WEIGHTS, value=lambda old: packed(inflated(old) + b"12")),
    "weights-and-more": change(
        *WEIGHTS, value=lambda old: base64.b64encode(base64.b64decode(old) + b"more").decode()
    ),
    "weights-cut": change(*WEIGHTS, value=lambda old: base64.b64encode(base64.b64decode(old)[:-3]).decode()),
    "weights-no-base64": change(*WEIGHTS, value="***"),
    "weights-not-ascii": change(*WEIGHTS, value="α"),
    "weights-empty": change(*WEIGHTS, value=""),
    "weight-nan": change(*WEIGHTS, value=lambda old: first_weight(old, math.nan)),
    "weight-infinite": change(*WEIGHTS, value=lambda old: first_weight(old, math.inf)),
    "weight-negative": change(*WEIGHTS, value=lambda old: first_weight(old, -0.5)),
    "weight-above-one": change(*WEIGHTS, value=lambda old: first_weight(old, 2.0)),
    "targets-fewer": change("maps", 0, "targets", value=lambda words: words[:-1]),
    "map-twice": change(*MAP[:-1], value=lambda rows: [*rows, rows[0]]),
    "map-of-no-layer": change(*MAP, "layer", value=77),
}  # fmt: skip


def inflated(old):
    return zlib.decompress(base64.b64decode(old))


def first_weight(old, value):
    return packed(struct.pack("<e", value) + inflated(old)[2:])


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_analysis_is_refused_in_one_sentence(kind, tmp_path, capsys):
    path = tmp_path / NAME
    path.write_bytes(KINDS[kind](small()))
    said = sentence_of(["report", path, f"--output={tmp_path / 'r.html'}"], capsys)
    assert said.startswith("fairseq-entmax report: ")
    assert str(path) in said
    assert len(said) < 700
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("kind", ["bomb", "as-many-tokens-as-bytes"])
def test_what_a_bomb_would_fill_is_never_asked_for(kind, tmp_path):
    path = tmp_path / NAME
    path.write_bytes(KINDS[kind](small()))
    size = path.stat().st_size
    tracemalloc.start()
    with pytest.raises(ValueError, match="analysis"):
        document.read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16e6 + 30 * size
    assert peak < 120e6  # each is of more than 250 MB


def test_a_shape_of_more_than_the_limit_is_not_inflated():
    entry = {"shape": [1, 1 << 15, (1 << 14) + 1], "weights": packed(bytes(10))}
    assert maps.map_bytes(entry["shape"]) > maps.LARGEST
    with pytest.raises(ValueError, match="cannot be read: they are 1,073,807,360 bytes, more than"):
        maps.decoded(entry)


def test_the_largest_weight_is_a_weight():
    maps.check_weights(np.array([0, 1, 1 + 2**-10], dtype="<f2"))
    with pytest.raises(ValueError, match="weights are from 0 to 1"):
        maps.check_weights(np.array([0, 1.01], dtype="<f2"))


def test_a_file_of_more_than_an_analysis_can_have_is_not_read(tmp_path):
    path = tmp_path / NAME
    with path.open("wb") as file:
        file.truncate(document.LARGEST_FILE + 1)
    with pytest.raises(
        ValueError, match=r"analysis\.json has .* bytes, and an analysis .* at most"
    ):
        document.read(path)


@pytest.mark.slow
def test_a_file_of_27_megabytes_that_inflates_to_20_gigabytes_is_refused(tmp_path):
    """In a process that may have 6 GB, torch's libraries among them."""
    path = tmp_path / NAME
    block = 1 << 26
    compressor = zlib.compressobj(9, wbits=-15)
    one = compressor.compress(bytes(block)) + compressor.flush(zlib.Z_FULL_FLUSH)
    checksum = (320 * block % 65521 << 16) + 1  # Adler's, of so many zeros
    stream = b"\x78\xda" + 320 * one + compressor.flush() + struct.pack(">I", checksum)
    bomb = base64.b64encode(stream).decode()
    path.write_bytes(change(*WEIGHTS, value=bomb)(small()))
    assert 20e6 < path.stat().st_size < 35e6
    script = """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        from fairseq_entmax import cli
        sys.exit(cli.main(sys.argv[1:]))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), "report", path, "--output=r.html"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    # On a busy machine it is said what takes so long, too
    *before_it, sentence = result.stderr.splitlines()
    assert set(before_it) <= {"the page and the figures are drawn"}, result.stderr[-500:]
    assert "analysis.json is damaged at $.maps[0].models[0][0]: weights of the shape" in sentence
    assert max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) < 3 << 20  # KiB
