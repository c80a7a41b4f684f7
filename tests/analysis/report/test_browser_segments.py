"""Segments and clusters of equal weights, in a real browser."""

import base64

import numpy as np
import pytest

from fairseq_entmax.analysis.report.figures import figures
from fairseq_entmax.analysis.report.page import render_page
from tests.analysis import brute_force
from tests.analysis.report.browser import save_screenshot
from tests.analysis.report.grouped import CLUSTERS, RUNS, give_groups
from tests.analysis.report.page_actions import (
    agrees,
    canvas_of,
    draw_every_figure,
    point_at,
    select,
    shown_weight,
)
from tests.analysis.report.synthetic import synthetic_analysis

pytestmark = pytest.mark.slow

ATTENTIONS = ("encoder-self", "decoder-self", "cross")
SOFTMAX, OSCARMAX, FUSEDMAX = range(3)


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    """A report of softmax, oscarmax and fusedmax, its analysis, and the exact weights."""
    analysis = synthetic_analysis(models=3, layers=1, heads=3, sentences=1, length=24)
    exact = {
        OSCARMAX: give_groups(analysis, OSCARMAX, CLUSTERS),
        FUSEDMAX: give_groups(analysis, FUSEDMAX, RUNS),
    }
    analysis["models"][OSCARMAX]["name"] = "oscarmax"
    analysis["models"][FUSEDMAX]["name"] = "fusedmax"
    path = tmp_path_factory.mktemp("grouped") / "report.html"
    path.write_text(render_page(analysis, figures(analysis)), encoding="utf-8")
    return path, analysis, exact


def rows_of(grouped, model, attention, head):
    return grouped[2][model][0, attention, 0][head].tolist()


def sides(grouped, attention):
    """The tokens of rows and of columns."""
    entry = grouped[1]["maps"][0]
    names = {"encoder-self": ("source", "source"), "cross": ("targets", "source")}
    return [entry[name] for name in names.get(attention, ("queries", "queries"))]


def cells(page, model):
    """A function that gives the pixels ``(height, width, 4)`` of a part of a map, in cells."""
    data = canvas_of(page, model).evaluate(
        """(canvas) => {
          const { width, height } = canvas;
          const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
          const layout = ["left", "top", "cell"].map((name) => Number(canvas.dataset[name]));
          const text = Array.from(pixels, (byte) => String.fromCharCode(byte)).join("");
          return { width, height, layout, dots: devicePixelRatio, pixels: btoa(text) };
        }"""
    )
    assert data["dots"] == 1
    content = np.frombuffer(base64.b64decode(data["pixels"]), np.uint8).astype(int)
    image = content.reshape(data["height"], data["width"], 4)
    left, top, cell = map(int, data["layout"])

    def part(query, begin, end):
        y = top + query * cell
        return image[y : y + cell, left + begin * cell : left + end * cell]

    return part


@pytest.mark.parametrize(
    ("attention", "scheme"),
    [*((attention, "light") for attention in ATTENTIONS), ("cross", "dark")],
)
def test_a_run_is_one_box_without_borders_inside(opened, grouped, attention, scheme, tmp_path):
    page = opened(grouped[0], scheme=scheme)
    select(page, FUSEDMAX, attention, 0, 1)
    part, ink, several = cells(page, FUSEDMAX), {"light": 0, "dark": 255}[scheme], 0
    for query, row in enumerate(rows_of(grouped, FUSEDMAX, attention, 1)):
        for run in brute_force.runs(row):
            box = part(query, run[0], run[-1] + 1)
            edge = np.concatenate([box[0], box[-1], box[:, 0], box[:, -1]])
            inside = box[2:-2, 2:-2]
            assert np.ptp(inside, axis=(0, 1)).max() == 0, "one colour from end to end"
            assert (edge[:, :3] == ink).all() == (len(run) > 1), "an outline around several"
            several += len(run) > 1
    assert several > 2
    point_at(page, FUSEDMAX, 0, 0)  # so that the map is seen
    save_screenshot(page, f"segments-{attention}-{scheme}", tmp_path)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_hovering_a_run_says_its_words_and_what_they_have_together(opened, grouped, attention):
    page = opened(grouped[0])
    select(page, FUSEDMAX, attention, 0, 1)
    queries, keys = sides(grouped, attention)
    rows = enumerate(rows_of(grouped, FUSEDMAX, attention, 1))
    runs = [(q, run, row) for q, row in rows for run in brute_force.runs(row) if len(run) > 1]
    for query, run, row in runs[:4]:
        point_at(page, FUSEDMAX, query, run[-1])
        words = " ".join(keys[place] for place in run)
        text = page.locator("#tooltip").inner_text()
        begin = f"{queries[query]} → {keys[run[-1]]}: "
        assert text.startswith(begin)
        each, rest = text.removeprefix(begin).split(" – as each of ")
        assert agrees(each, row[run[0]])
        assert rest.startswith(f"“{words}”, {len(run)} keys together ")
        together, error = map(float, rest.split(" together ")[1].split(" ± "))
        assert abs(together - len(run) * row[run[0]]) <= error < 0.05
        assert agrees(shown_weight(page, FUSEDMAX), row[run[0]])
        below = page.locator(f'#readout [data-group="{FUSEDMAX}"]').inner_text()
        assert below == f"fusedmax: {rest}"


def test_a_key_alone_and_a_head_of_softmax_have_no_words_together(opened, grouped):
    page = opened(grouped[0])
    select(page, FUSEDMAX, "cross", 0, 1)
    rows = rows_of(grouped, FUSEDMAX, "cross", 1)
    query, place = next(
        (q, run[0]) for q, row in enumerate(rows) for run in brute_force.runs(row) if len(run) == 1
    )
    point_at(page, FUSEDMAX, query, place)
    assert "together" not in page.locator("#tooltip").inner_text()
    assert page.locator(f'#readout [data-group="{FUSEDMAX}"]').count() == 0
    height = page.locator("#readout").bounding_box()["height"]
    point_at(page, FUSEDMAX, *next((q, g[0]) for q, row in enumerate(rows)
                                   for g in brute_force.runs(row) if len(g) > 1))  # fmt: skip
    assert page.locator("#readout").bounding_box()["height"] == height
    select(page, FUSEDMAX, "cross", 0, 0)
    point_at(page, FUSEDMAX, 1, 1)
    assert "together" not in page.locator("#readout").inner_text()


def marks_of(part, query, row):
    """The middle of each key alone in its place that is in a cluster of several, by its place."""
    found = {}
    for cluster in brute_force.clusters(row):
        runs = [run for run in brute_force.runs(row) if run[0] in cluster]
        for run in runs if len(runs) > 1 else ():
            if len(run) == 1:
                box = part(query, run[0], run[0] + 1)[2:-2, 2:-2, :3]
                found[run[0]] = (tuple(cluster), np.abs(box - box[0, 0]).sum(axis=2) > 120)
    return found


def test_keys_apart_of_one_cluster_have_the_same_mark_and_others_another(opened, grouped):
    page = opened(grouped[0])
    select(page, OSCARMAX, "encoder-self", 0, 1)
    part, compared = cells(page, OSCARMAX), set()
    for query, row in enumerate(rows_of(grouped, OSCARMAX, "encoder-self", 1)):
        marks = list(marks_of(part, query, row).values())
        for number, (cluster, shape) in enumerate(marks):
            assert shape.any(), "there is a mark"
            for other, another in marks[:number]:
                assert np.array_equal(shape, another) == (cluster == other)
                compared.add(cluster == other)
        alone = [g[0] for g in brute_force.clusters(row) if len(g) == 1]
        for place in alone:
            assert np.ptp(part(query, place, place + 1)[2:-2, 2:-2], axis=(0, 1)).max() == 0
    assert compared == {True, False}


def test_hovering_a_cluster_says_the_words_of_all_its_places(opened, grouped):
    page = opened(grouped[0])
    select(page, OSCARMAX, "cross", 0, 1)
    _, keys = sides(grouped, "cross")
    query, cluster, row = next(
        (q, cluster, row)
        for q, row in enumerate(rows_of(grouped, OSCARMAX, "cross", 1))
        for cluster in brute_force.clusters(row)
        if len(cluster) > 1 and cluster not in brute_force.runs(row)
    )
    point_at(page, OSCARMAX, query, cluster[0])
    runs = [run for run in brute_force.runs(row) if run[0] in cluster]
    words = " … ".join(" ".join(keys[place] for place in run) for run in runs)
    text = page.locator("#tooltip").inner_text()
    assert f"as each of “{words}”, {len(cluster)} keys together" in text


def test_the_legend_explains_segments_where_there_are_some(opened, grouped, file):
    page = opened(grouped[0])
    assert page.locator("#map-legend .segment").count() == 1
    assert page.locator("#map-legend .mark").count() == 1
    assert opened(file).locator("#map-legend .segment").count() == 0


def test_the_figures_of_segments_are_drawn_in_the_page(opened, grouped):
    page = opened(grouped[0])
    draw_every_figure(page)
    titles = page.locator("figure h3").all_inner_texts()
    assert [t for t in titles if t.startswith("Segments")] == [
        f"Segments: {attention}" for attention in ATTENTIONS
    ]
