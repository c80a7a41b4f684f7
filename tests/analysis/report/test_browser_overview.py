"""The report as a page: its overview, list and figures, in a real browser."""

import pytest

from fairseq_entmax.analysis.report.figures import figures
from tests.analysis.report.browser import PHONE, save_screenshot
from tests.analysis.report.page_actions import (
    cell_texts,
    choose_measure,
    draw_every_figure,
    key,
    map_of,
    point_at,
    row,
    select,
    wait_for_map,
    write,
)
from tests.analysis.report.synthetic import every_head, synthetic_analysis

pytestmark = pytest.mark.slow


def test_the_overview_shows_the_chosen_measure(opened, analysis):
    page = opened()
    layer = analysis["models"][2]["attentions"][1]
    head = layer["heads"][3]
    assert (layer["attention"], layer["layer"]) == ("encoder-self", 1)
    for name, value in {
        "entropy": head["entropy"],
        "confidence": head["confidence"],
        "weight@-1": head["offsets"]["weight"]["-1"],
        "to-head@amod": head["dependencies"]["amod"]["to_head"],
        "diversity": layer["diversity"],
    }.items():
        choose_measure(page, name)
        texts = cell_texts(page)
        # All heads except the pruned one
        assert len(texts) == 3 * 3 * 2 * 4 - 1
        assert float(texts[key(2, "encoder-self", 1, 3)]) == pytest.approx(value, abs=0.00501)
    groups = page.locator("#measure optgroup").evaluate_all("all => all.map(g => g.label)")
    assert groups[:2] == ["Mean weight at an offset", "Largest weight at an offset"]


def test_numbers_are_rounded_once_and_almost_1_is_not_shown_as_1(opened, tmp_path):
    small = synthetic_analysis(models=2, layers=1, heads=4, sentences=0)
    heads = small["models"][1]["attentions"][0]["heads"]
    for head, density in zip(heads, (0.99996, 1.0, 0.00004, 0.0), strict=True):
        head["density"] = density
    heads[0]["entropy"] = 2.33349951  # 2.333; from five digits it would be 2.3335 and 2.334
    page = opened(write(tmp_path, small))
    choose_measure(page, "density")
    texts = cell_texts(page)
    shown = [texts[key(1, "encoder-self", 0, number)] for number in range(4)]
    assert shown == [">0.99", "1.00", "<0.01", "0.00"]
    assert "2.333" in row(page, 1, "encoder-self", 0, 0).inner_text().split()
    assert "no attention maps" in page.locator("#maps").inner_text()
    assert "no figures" in page.locator("#figures").inner_text()


def test_a_click_on_a_cell_selects_its_head_everywhere(opened):
    page = opened()
    wanted = key(1, "cross", 0, 2)
    place = page.evaluate_handle(
        """key => [...document.querySelectorAll("#grids text")]
             .find((one) => one.__data__?.datum?.key === key)""",
        wanted,
    ).as_element()
    place.click()
    wait_for_map(page, 1, "cross", 0, 2)
    assert row(page, 1, "cross", 0, 2).get_attribute("aria-selected") == "true"
    assert page.locator("#heads-table tr[aria-selected=true]").count() == 1
    for part in ("#selected-line", "#details-title"):
        assert "entmax15 · cross · layer 0 · head 2" in page.locator(part).inner_text()
    assert "layer 0 · head 2" in map_of(page, 1).get_attribute("aria-label")
    frame = page.locator('#grids path[stroke="#D55E00"]')
    frame.wait_for()
    assert frame.count() == 1
    page.locator("#details .chart svg").nth(1).wait_for()


def test_the_list_is_sorted_by_a_click_on_a_title_and_filtered(opened, analysis):
    page = opened()
    title = page.locator("#heads-table th", has_text="Density")
    column = page.locator("#heads-table th").all_inner_texts().index(title.inner_text())
    densities = sorted(head["density"] for head in every_head(analysis))
    for order, expected in (("descending", densities[::-1]), ("ascending", densities)):
        title.locator("button").click()
        assert title.get_attribute("aria-sort") == order
        shown = page.evaluate(
            "column => [...document.querySelectorAll('#heads-table tbody tr')]"
            ".map(row => Number(row.cells[column].textContent))",
            column,
        )
        assert shown == pytest.approx(expected, abs=0.000501)
    shown = page.locator("#heads-table tbody tr:not([hidden])")
    for words, count in {
        "layer 1": 36, "LAYER 1 cross": 12, "cross softmax": 8, "self": 47, "head 1": 18,
        "head": 71, "no-such-word": 0,
    }.items():  # fmt: skip
        page.fill("#heads-filter", words)
        assert shown.count() == count
    page.fill("#heads-filter", "layer 1")
    page.select_option("#heads-model", "1")
    page.select_option("#heads-attention", "cross")
    assert page.locator("#heads-count").inner_text() == "4 of 71 heads"
    shown.first.focus()
    for name in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(name)
    assert "layer 1" in page.locator("#selected-line").inner_text()


def test_long_names_and_tokens_do_not_break_the_layout(opened, tmp_path):
    analysis = synthetic_analysis(models=2, layers=1, heads=16, sentences=1, length=40)
    analysis["models"][0]["name"] = "a_model_with_a_name_of_many_letters_" * 3
    analysis["maps"][0]["source"][0] = "x" * 300
    page = opened(write(tmp_path, analysis, figures(analysis)), viewport=PHONE)
    overflow = "document.documentElement.scrollWidth - innerWidth"
    draw_every_figure(page)
    assert page.evaluate(overflow) <= 0
    select(page, 1, "cross", 0, 1)
    point_at(page, 0, 1, 2)
    for model in range(2):
        weight = page.locator(f'#readout [data-model="{model}"] strong').bounding_box()
        outer = page.locator("#readout .weights").bounding_box()
        assert outer["x"] <= weight["x"]
        assert weight["x"] + weight["width"] <= outer["x"] + outer["width"] + 0.5
    page.check("input[name=view][value=all]")
    page.wait_for_selector("#map-panels .thumbnails img")
    assert page.evaluate(overflow) <= 0
    ends = [one.bounding_box() for one in page.locator("nav li:not([hidden]) a").all()]
    assert max(box["x"] + box["width"] for box in ends) <= PHONE["width"]


def test_figures_of_a_large_report_fit_their_boxes_on_a_phone(opened, large, tmp_path):
    assert large.stat().st_size < 15e6
    page = opened(large, viewport=PHONE, touch=True, scheme="dark")
    select(page, 2, "cross", 3, 4)
    point_at(page, 0, 5, 6)
    saved = [save_screenshot(page, "phone-map", tmp_path)]
    page.locator("#figures").scroll_into_view_if_needed()
    page.locator("#figure-list .chart").first.focus()
    page.locator("#figure-list .chart svg.marks").first.wait_for()
    assert draw_every_figure(page) == 11
    cut_off = page.locator("#figure-list .chart").evaluate_all(
        "all => all.filter(c => c.scrollWidth > c.clientWidth + 1).map(c => c.ariaLabel)"
    )
    assert cut_off == []
    page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    saved.append(save_screenshot(page, "phone-whole", tmp_path, full_page=True))
    assert all(path.stat().st_size > 10_000 for path in saved)
