"""The list of heads in a real browser."""

import re

import pytest

from fairseq_entmax.analysis.report.page import render_page
from tests.analysis.report.browser import PHONE
from tests.analysis.report.page_actions import head_of, select, wait_for_map
from tests.analysis.report.synthetic import synthetic_analysis

pytestmark = pytest.mark.slow


def test_arrow_keys_move_in_the_list_and_enter_selects(opened):
    page = opened()
    page.fill("#heads-filter", "cross")
    page.locator("#heads-table tbody tr:not([hidden])").first.focus()
    for name in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(name)
    wait_for_map(page, 0, "cross", 0, 2)


def test_a_click_on_a_title_sorts_the_list_and_another_turns_it_round(opened, analysis):
    page = opened()
    title = page.locator("#heads-table th", has_text="Density")
    column = int(title.get_attribute("aria-colindex")) - 1
    densities = sorted(
        head["density"] for model in analysis["models"]
        for entry in model["attentions"] for head in entry["heads"]
    )  # fmt: skip
    for order, expected in (("descending", densities[::-1]), ("ascending", densities)):
        title.locator("button").click()
        assert title.get_attribute("aria-sort") == order
        shown = page.evaluate(
            "column => [...document.querySelectorAll('#heads-table tbody tr')]"
            ".map(row => Number(row.cells[column].textContent))",
            column,
        )
        assert shown == pytest.approx(expected, abs=0.000501)


def test_the_list_is_filtered_by_text_model_and_attention(opened):
    page = opened()
    shown = page.locator("#heads-table tbody tr:not([hidden])")
    assert shown.count() == 3 * 2 * 3 * 4 - 1
    page.fill("#heads-filter", "layer 1")
    assert shown.count() == 3 * 3 * 4
    page.select_option("#heads-model", "1")
    page.select_option("#heads-attention", "cross")
    assert shown.count() == 4
    assert page.locator("#heads-count").inner_text() == "4 of 71 heads"


def test_the_list_opens_at_its_first_rows_with_every_column_in_sight_of_a_laptop(opened, large):
    page = opened(large, viewport={"width": 1280, "height": 800})
    width, seen, top = page.evaluate(
        "(() => { const box = document.getElementById('heads-scroll');"
        " return [box.scrollWidth, box.clientWidth, box.scrollTop]; })()"
    )
    assert top == 0
    assert width <= seen


def test_the_menu_wraps_on_a_phone_so_that_every_section_is_in_sight(opened):
    page = opened(viewport=PHONE)
    links = page.locator("nav.sections li:not([hidden]) a")
    ends = [box["x"] + box["width"] for box in (one.bounding_box() for one in links.all())]
    assert max(ends) <= PHONE["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.fixture(scope="module")
def twelve(tmp_path_factory):
    """Models softmax, entmax15 and entmax with a layer of twelve heads."""
    path = tmp_path_factory.mktemp("twelve") / "report.html"
    path.write_text(render_page(synthetic_analysis(3, 1, 12, 0)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("softmax encoder-self", 12),
        ("encoder-self softmax", 12),
        ("self cross", 0),
        ("encoder", 3 * 12),
        ("self", 2 * 3 * 12),
        ("entmax", 3 * 12),
        ("ENTMAX1", 3 * 12),
        ("head 1", 3 * 3),
        ("head 11", 3 * 3),
        ("cross head 1 entmax", 1),
        ("no-such-word", 0),
    ],
)
def test_the_filter_finds_words_in_any_order_whole_ones_first(opened, twelve, words, found):
    page = opened(twelve)
    page.fill("#heads-filter", words)
    assert page.locator("#heads-table tbody tr:not([hidden])").count() == found


def test_details_show_the_offsets_and_the_histogram_of_the_analysis(opened, analysis):
    page = opened()
    select(page, 2, "encoder-self", 0, 0)
    head = head_of(analysis, 2, "encoder-self", 0, 0)
    bars = page.locator("#details .columns").first.locator("li").all_text_contents()
    assert len(bars) == 11
    assert f"{round(100 * head['offsets']['maximum']['-1'])} %" in bars[4]
    histogram = page.locator("#details .columns").nth(1).locator("li").all_text_contents()
    counts = [
        int(re.search(r"([\d,]+) sentences?$", text)[1].replace(",", "")) for text in histogram
    ]
    assert counts == head["density_histogram"]
