"""The overview of the report in a real browser."""

import re

import numpy as np
import pytest

from fairseq_entmax.analysis.report.page import render_page
from tests.analysis.report.browser import (
    PHONE,
)
from tests.analysis.report.page_actions import (
    canvas_of,
    cell,
    head_of,
    key,
    luminance,
    row,
    select,
    wait_for_map,
)
from tests.analysis.report.synthetic import synthetic_analysis

pytestmark = pytest.mark.slow


def test_the_overview_shows_the_measure_that_is_chosen(opened, analysis):
    page = opened()
    for name, field in (("entropy", "entropy"), ("confidence", "confidence")):
        page.select_option("#measure", name)
        value = head_of(analysis, 2, "cross", 1, 3)[field]
        shown = cell(page, 2, "cross", 1, 3)
        assert float(shown.inner_text()) == pytest.approx(value, abs=0.00501)
        told = re.search(r"head 3: \w+ ([\d.]+)", shown.get_attribute("aria-label"))[1]
        assert float(told) == pytest.approx(value, abs=0.00056)


def test_the_overview_shows_offsets_dependencies_and_diversity(opened, analysis):
    page = opened()
    layer = analysis["models"][2]["attentions"][1]
    head = layer["heads"][3]
    assert (layer["attention"], layer["layer"]) == ("encoder-self", 1)
    for name, value in {
        "weight@-1": head["offsets"]["weight"]["-1"],
        "share@+1": head["offsets"]["share"]["1"],
        "to-head@amod": head["dependencies"]["amod"]["to_head"],
        "diversity": layer["diversity"],
    }.items():
        page.select_option("#measure", name)
        shown = cell(page, 2, "encoder-self", 1, 3)
        assert float(shown.inner_text()) == pytest.approx(value, abs=0.00501)
    groups = page.locator("#measure optgroup").evaluate_all("all => all.map(g => g.label)")
    assert groups == [
        "Mean weight at an offset", "Largest weight at an offset",
        "Dependencies: to the head", "Dependencies: to the dependent",
        "Weight on a part of speech",
    ]  # fmt: skip


def test_numbers_are_rounded_once_and_nearly_1_is_not_1(opened, tmp_path):
    small = synthetic_analysis(models=2, layers=1, heads=4, sentences=0)
    heads = small["models"][1]["attentions"][0]["heads"]
    for head, density in zip(heads, (0.99996, 1.0, 0.00004, 0.0), strict=True):
        head["density"] = density
    heads[0]["entropy"] = 2.33349951  # 2.333; from five digits it would be 2.3335 and 2.334
    path = tmp_path / "digits.html"
    path.write_text(render_page(small), encoding="utf-8")
    page = opened(path)
    page.select_option("#measure", "density")
    labels = [cell(page, 1, "encoder-self", 0, n).get_attribute("aria-label") for n in range(4)]
    shown = [re.search(r"Density (\S+?)(?:,|$)", label)[1] for label in labels]
    assert shown == [">0.999", "1.000", "<0.001", "0.000"]
    page.select_option("#measure", "entropy")
    assert "Entropy 2.333" in cell(page, 1, "encoder-self", 0, 0).get_attribute("aria-label")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_larger_number_stands_out_more_from_the_page(opened, analysis, scheme):
    page = opened(scheme=scheme)
    page.select_option("#measure", "entropy")
    values = [head_of(analysis, 0, "cross", 0, head)["entropy"] for head in range(4)]
    levels = [luminance(page, cell(page, 0, "cross", 0, head)) for head in range(4)]
    order = np.argsort(values) if scheme == "dark" else np.argsort(values)[::-1]
    assert list(np.argsort(levels)) == list(order)


def test_a_pruned_head_is_shown_as_absent(opened):
    page = opened()
    absent = page.locator("#grids td.absent")
    assert absent.count() == 1
    assert absent.get_attribute("aria-label") == "layer 0, head 3: no such head"
    assert "pruned" in page.locator("#overview-legend").inner_text()


def test_a_grid_of_many_heads_scrolls_in_its_own_box_and_keeps_its_numbers_apart(opened, tmp_path):
    wide = synthetic_analysis(models=2, layers=1, heads=16, sentences=0)
    path = tmp_path / "wide.html"
    path.write_text(render_page(wide), encoding="utf-8")
    page = opened(path, viewport=PHONE)
    clipped = page.locator("#grids td[role=gridcell]").evaluate_all(
        "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth).length"
    )
    assert clipped == 0
    box = page.locator("#grids .scroll").first
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")


def test_a_click_on_a_cell_selects_its_head_everywhere(opened):
    page = opened()
    select(page, 1, "cross", 0, 2)
    assert row(page, 1, "cross", 0, 2).get_attribute("aria-selected") == "true"
    assert page.locator("#heads-table tr[aria-selected=true]").count() == 1
    for place in ("#selected-line", "#details-title"):
        assert "entmax15 · cross · layer 0 · head 2" in page.locator(place).inner_text()
    assert "layer 0 · head 2" in canvas_of(page, 1).get_attribute("aria-label")
    box, list_box = row(page, 1, "cross", 0, 2).bounding_box(), page.locator("#heads-scroll")
    frame = list_box.bounding_box()
    assert frame["y"] <= box["y"] <= frame["y"] + frame["height"] - box["height"]


def test_a_head_is_selected_by_arrow_keys_and_enter(opened):
    page = opened()
    cell(page, 0, "encoder-self", 0, 0).focus()
    for name in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "Enter"):
        page.keyboard.press(name)
    wait_for_map(page, 0, "encoder-self", 1, 1)
    assert cell(page, 0, "encoder-self", 1, 1).get_attribute("aria-selected") == "true"
    reachable = page.locator("#grids table").first.locator("td[tabindex='0']")
    assert reachable.count() == 1
    assert page.evaluate("document.activeElement.dataset.head") == key(0, "encoder-self", 1, 1)
