"""The report of text that models generated, and of copy heads, in a real browser."""

import pytest

from fairseq_entmax.analysis.document import validate
from fairseq_entmax.analysis.report.figures import figures
from fairseq_entmax.analysis.report.page import render_page
from tests.analysis.report.page_actions import cell, select
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.report.test_figures import layer_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """Two models with texts of their own; the second copies by head 2 of its top layer."""
    analysis = synthetic_analysis(models=2, layers=2, heads=4, sentences=1, length=9)
    analysis |= {"of": "generated", "search": {"task": "translation", "beam": 7}}
    for model in analysis["models"]:
        model["generated"] = {"tokens": 1234, "empty": 1, "longest": 17}
    analysis["models"][1]["copying"] = {"share": 0.43, "unreachable": 2}
    layer_of(analysis, 1, "cross", 1)["copy_heads"] = [2]
    (whole,) = analysis["maps"]
    analysis["maps"] = [
        {
            **whole,
            "model": own,
            "models": [one if place == own else [] for place, one in enumerate(whole["models"])],
        }
        for own in range(2)
    ]
    validate(analysis, "generated")
    path = tmp_path_factory.mktemp("generated") / "report.html"
    path.write_text(render_page(analysis, figures(analysis)), encoding="utf-8")
    return path


def test_the_page_says_by_which_search_the_text_was_made_and_how_much(opened, generated):
    page = opened(generated)
    line = page.locator("#data-line").inner_text()
    assert "text that each model generated: task translation, beam 7" in line
    titles = page.locator("#models-table th[scope=col]").all_inner_texts()
    cells = page.locator("#models-table tbody tr").nth(1).locator("td").all_inner_texts()
    row = dict(zip(titles[1:], cells, strict=True))
    assert row["Tokens generated"] == "1,234"
    assert row["Of the longest length"] == "17"
    assert row["Copied (1 − g)"] == "43 %"
    assert "Loss of its text (nats a token)" in row


def test_copy_heads_are_marked_in_the_overview_and_in_the_list(opened, generated):
    page = opened(generated)
    assert "copies" in cell(page, 1, "cross", 1, 2).get_attribute("class")
    assert page.locator("#grids td.copies").count() == 1
    assert "copy head" in cell(page, 1, "cross", 1, 2).get_attribute("aria-label")
    assert "words are copied by this head" in page.locator("#overview-legend").inner_text()
    page.fill("#heads-filter", "copy head")
    assert page.locator("#heads-count").inner_text() == "1 of 48 heads"


def test_a_map_is_of_one_models_text_and_the_other_has_none(opened, generated):
    page = opened(generated)
    names = page.locator(".sentence-number").all_inner_texts()
    assert names == ["#0 by softmax", "#0 by entmax15"]
    select(page, 1, "cross", 0, 1)
    page.locator("#sentence-list input").nth(1).check()
    page.wait_for_function("document.querySelector('#map-panels').dataset.shown?.startsWith('1 ')")
    hidden = page.locator("#map-panels canvas").evaluate_all("all => all.map(c => c.hidden)")
    assert hidden == [True, False]
    page.check("input[name=view][value=all]")
    page.wait_for_selector("#map-panels table.thumbnails")
