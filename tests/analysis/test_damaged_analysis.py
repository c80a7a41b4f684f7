"""``report`` on an ``analysis.json`` that is damaged: one sentence, and no page."""

import json

import pytest

from tests.analysis.report.synthetic import synthetic_analysis
from tests.damage import cut, garbled, sentence_of

NAME = "analysis.json"


def small():
    return synthetic_analysis(models=2, layers=2, heads=2, sentences=2, length=6)


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


LAYER = ("models", 0, "attentions", 0)
HEAD = (*LAYER, "heads", 0)
KINDS = {
    "empty": raw(cut(0)),
    "half": raw(cut(0.5)),
    **{f"garbled-{seed}": raw(garbled(seed)) for seed in range(2)},
    "binary": raw(lambda content: bytes(range(256)) * 8),
    "not-a-number": text('"loss": ', '"loss": NaN, "was": '),
    "mapping-no-text": change(*LAYER, "mapping", value=7),
    "number-without-place": change("numbers", 0, "place", value=[]),
    "histogram-short": change(*HEAD, "density_histogram", value=[1]),
    "chosen-without-lengths-or-way": change("chosen", value={}),
    "error-below-0": change(*HEAD, "standard_errors", value={"relevance": -1}),
    "sentences-in-words": change("models", 0, "importance_sentences", value={"relevance": "all"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_analysis_is_refused_in_one_sentence(kind, tmp_path, capsys):
    path = tmp_path / NAME
    path.write_bytes(KINDS[kind](small()))
    said = sentence_of(["report", path, f"--output={tmp_path / 'r.html'}"], capsys)
    assert said.startswith("fairseq-entmax report: ")
    assert str(path) in said
    assert len(said) < 700
    assert not (tmp_path / "r.html").exists()
