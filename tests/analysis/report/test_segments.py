"""Groups of equal weights in the page's data and in figures."""

import base64
import gzip
import re
import xml.etree.ElementTree

import numpy as np
import pytest
import vl_convert

from fairseq_entmax.analysis import document
from fairseq_entmax.analysis.groups import decoded_groups
from fairseq_entmax.analysis.report.figures import figures
from fairseq_entmax.analysis.report.labels import printed
from fairseq_entmax.analysis.report.page import render_page
from tests.analysis import brute_force
from tests.analysis.report.exporting import export_figures
from tests.analysis.report.grouped import CLUSTERS, RUNS, give_groups
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.report.test_page import embedded

ATTENTIONS = ("encoder-self", "decoder-self", "cross")


@pytest.fixture(scope="module")
def grouped():
    """Models of softmax, of oscarmax and of fusedmax, and the exact weights of both latter."""
    analysis = synthetic_analysis(models=3, layers=2, heads=3, sentences=2, length=16)
    exact = {1: give_groups(analysis, 1, CLUSTERS), 2: give_groups(analysis, 2, RUNS)}
    document.validate(analysis, "a.json")
    return analysis, exact


def segments(analysis):
    found = [one for one in figures(analysis) if one.name.startswith("attention_segments")]
    return {one.name.removeprefix("attention_segments-"): one for one in found}


def test_the_page_has_the_groups_of_layers_that_have_some(grouped):
    analysis, _ = grouped
    page = render_page(analysis)
    for number, sentence in enumerate(embedded(page)["sentences"]):
        block = re.search(rf'id="groups-{number}">([^<]*)<', page)[1]
        content = np.frombuffer(gzip.decompress(base64.b64decode(block)), np.uint8)
        total = 0
        for places, items in zip(
            sentence["models"], analysis["maps"][number]["models"], strict=True
        ):
            for place, item in zip(places, items, strict=True):
                groups = decoded_groups(item)
                assert ("groups" in place) == (groups is not None)
                if groups is not None:
                    start = place["groups"]
                    assert np.array_equal(content[start : start + groups.size], groups.ravel())
                    total += groups.size
        assert content.size == total > 0


def test_a_page_without_groups_has_no_block_of_them():
    page = render_page(synthetic_analysis(models=3, layers=1, heads=2, sentences=1))
    assert 'id="weights-0"' in page
    assert 'id="groups-0"' not in page


def test_without_groups_there_is_no_figure_of_segments():
    assert segments(synthetic_analysis(models=3, layers=1, heads=2, sentences=1)) == {}


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_figure_has_a_box_for_each_run_of_the_head_with_most_weight_in_them(grouped, attention):
    analysis, exact = grouped
    (rows,) = segments(analysis)[attention].for_page()["datasets"].values()
    assert {row["model"] for row in rows} == {"entmax15", "entmax"}
    groups_of = {"entmax15": brute_force.clusters, "entmax": brute_force.runs}

    def share(name, row):
        return sum(row[p] for group in groups_of[name](row) if len(group) > 1 for p in group)

    by_sentence = []
    for sentence in range(2):
        best = {}
        for model, name in ((1, "entmax15"), (2, "entmax")):
            heads = [
                head.tolist()
                for layer in range(2)
                for head in exact[model][sentence, attention, layer][1:]
            ]
            best[name] = max(
                heads, key=lambda rows: brute_force.mean(share(name, row) for row in rows)
            )
        total = sum(brute_force.mean(share(n, row) for row in rows) for n, rows in best.items())
        by_sentence.append((total, sentence, best))
    _, sentence, best = max(by_sentence)
    entry = analysis["maps"][sentence]
    keys = entry["queries" if attention == "decoder-self" else "source"]
    for name, weights in best.items():
        drawn = [row for row in rows if row["model"] == name]
        expected = [
            (query, run[0], run[-1] + 1, " ".join(keys[place] for place in run))
            for query, row in enumerate(weights)
            for run in brute_force.runs(row)
        ]
        assert [(r["top"], r["from"], r["to"], r["words"]) for r in drawn] == expected
        for row in drawn:
            of_query = weights[row["top"]]
            group = next(g for g in groups_of[name](of_query) if row["from"] in g)
            assert row["keys"] == len(group)
            assert row["together"] == pytest.approx(sum(of_query[p] for p in group), rel=2e-3)
            apart = [g for g in brute_force.runs(of_query) if set(g) <= set(group)]
            assert (row["mark"] is not None) == (len(apart) > 1)


def test_the_words_of_a_segment_are_in_the_drawing(grouped, capfd):
    analysis, _ = grouped
    figure = segments(analysis)["cross"]
    drawing = vl_convert.vegalite_to_svg(figure.for_paper(), show_warnings=True)
    assert "WARN" not in "".join(capfd.readouterr())
    (rows,) = figure.for_page()["datasets"].values()
    texts = [e.text for e in xml.etree.ElementTree.fromstring(drawing).iter() if "text" in e.tag]
    sentence = re.search(r"in sentence (\d+)", figure.caption)[1]
    (entry,) = [one for one in analysis["maps"] if one["sentence"] == int(sentence)]
    for token in entry["source"]:
        assert texts.count(printed(token)) >= entry["source"].count(token)
    joined = [row for row in rows if row["to"] - row["from"] > 1]
    assert drawing.count('stroke="#D55E00" stroke-width="1.75"') == len(joined) > 0


def test_segments_are_written_as_svg_and_pdf(grouped, tmp_path):
    analysis, _ = grouped
    export_figures([segments(analysis)["decoder-self"]], tmp_path, ("svg", "pdf"))
    assert (tmp_path / "attention_segments-decoder-self.pdf").read_bytes().startswith(b"%PDF-")
    assert "<svg" in (tmp_path / "attention_segments-decoder-self.svg").read_text()


def test_tokens_of_any_letters_are_labels(grouped):
    analysis, _ = grouped
    analysis = {**analysis, "maps": [dict(analysis["maps"][0])]}
    odd = ['"]+alert(1)+["', "a\\b", "\u2028", "<img>"]
    entry = analysis["maps"][0]
    entry["source"] = [*odd, *entry["source"][len(odd) :]]
    drawing = vl_convert.vegalite_to_svg(segments(analysis)["encoder-self"].for_paper())
    texts = [e.text for e in xml.etree.ElementTree.fromstring(drawing).iter() if "text" in e.tag]
    assert {odd[0], odd[1], odd[3]} <= set(texts)
