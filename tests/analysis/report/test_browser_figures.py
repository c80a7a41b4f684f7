"""The figures of the report in a real browser."""

import base64
import re
from pathlib import Path

import pytest

from fairseq_entmax.analysis.report.figures import figures
from fairseq_entmax.analysis.report.page import render_page
from tests.analysis.report.browser import (
    LAPTOP,
    PHONE,
)
from tests.analysis.report.page_actions import (
    draw_every_figure,
    luminance,
)
from tests.analysis.report.synthetic import synthetic_analysis

pytestmark = pytest.mark.slow


def test_every_figure_is_drawn(opened, analysis):
    page = opened()
    assert draw_every_figure(page) == len(figures(analysis, None)) > 3
    empty = page.locator(".chart svg.marks").evaluate_all(
        "charts => charts.filter(c => c.getBoundingClientRect().width < 150).length"
    )
    assert empty == 0


def saved_figure(page, number, form):
    with page.expect_download() as download:
        page.locator("figure").nth(number).get_by_role("button", name=f"Save as {form}").click()
    assert download.value.suggested_filename.endswith(f".{form.lower()}")
    return Path(download.value.path()).read_bytes()


def test_a_figure_saved_as_svg_from_a_dark_page_is_dark_on_white(opened):
    page = opened(scheme="dark")
    for number in range(page.locator("figure").count()):
        svg = saved_figure(page, number, "SVG").decode()
        assert re.search(r'<rect width="[^"]+" height="[^"]+" fill="white"', svg)
        letters = re.findall(r'<text [^>]*fill="([^"]+)"', svg)
        assert letters
        # Also letters on cells, which have a light ground whatever the page's is
        assert set(letters) <= {"#33363d", "#14161a", "black"}


def test_a_figure_saved_as_png_from_a_dark_page_has_a_white_ground(opened):
    page = opened(scheme="dark")
    png = saved_figure(page, 0, "PNG")
    corner = page.evaluate(
        """async (text) => {
          const image = new Image();
          image.src = `data:image/png;base64,${text}`;
          await image.decode();
          const canvas = document.createElement("canvas");
          const context = canvas.getContext("2d");
          context.drawImage(image, 0, 0);
          return [...context.getImageData(1, 1, 1, 1).data];
        }""",
        base64.b64encode(png).decode(),
    )
    assert corner == [255, 255, 255, 255]


DRAWN = "document.querySelectorAll('.chart svg.marks').length"


def test_a_page_printed_right_after_opening_has_every_figure_on_light_paper(opened, analysis):
    page = opened(scheme="dark")
    assert page.evaluate(DRAWN) < len(figures(analysis, None))
    page.pdf()
    assert page.evaluate(DRAWN) == len(figures(analysis, None))
    assert page.evaluate("document.documentElement.dataset.theme") is None


def test_the_print_button_waits_for_every_figure(opened, analysis):
    page = opened(scheme="dark")
    page.evaluate(
        f"""window.print = () => {{
          window.seen = [{DRAWN}, document.documentElement.dataset.theme];
          dispatchEvent(new Event("afterprint"));
        }}"""
    )
    page.locator("#print").click()
    page.wait_for_function("window.seen")
    assert page.evaluate("window.seen") == [len(figures(analysis, None)), "light"]
    assert luminance(page, page.locator("body")) < 0.05


def overflowing(page):
    return page.locator(".chart").evaluate_all(
        "all => all.filter(c => c.scrollWidth > c.clientWidth).map(c => c.closest('figure').id)"
    )


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_figures_of_three_models_fit_their_boxes(opened, large, viewport):
    page = opened(large, viewport=viewport)
    draw_every_figure(page)
    assert overflowing(page) == []


def test_long_names_and_many_models_do_not_make_figures_wider_than_their_boxes(opened, tmp_path):
    many = synthetic_analysis(models=6, layers=12, heads=3, sentences=0)
    for number, model in enumerate(many["models"]):
        model["name"] = f"{number}_a_model_with_a_name_of_many_letters_" * 2
    path = tmp_path / "many.html"
    path.write_text(render_page(many, figures(many, None)), encoding="utf-8")
    page = opened(path)
    draw_every_figure(page)
    assert overflowing(page) == []


def test_figures_follow_the_width_of_the_window(opened, large):
    page = opened(large)
    draw_every_figure(page)
    width = "Number(document.querySelector('.chart svg.marks').getAttribute('width'))"
    before = page.evaluate(width)
    page.set_viewport_size({"width": 600, "height": 800})
    page.wait_for_function(f"{width} < {before} - 40")
    page.wait_for_timeout(1500)
    assert overflowing(page) == []
    page.set_viewport_size(LAPTOP)
    page.wait_for_function(f"Math.abs({width} - {before}) < 2")


def test_the_tab_key_reaches_every_figure_and_draws_it(opened, analysis):
    page = opened()
    page.locator("figure button").first.evaluate("e => e.focus({preventScroll: true})")
    reached = set()
    for _ in range(6 * len(figures(analysis, None))):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "[document.activeElement.dataset.figure, document.activeElement.ariaLabel]"
        )
        if focused[0]:
            page.wait_for_selector(f'.chart[data-figure="{focused[0]}"] svg.marks')
            reached.add(int(focused[0]))
    assert reached == set(range(len(figures(analysis, None))))


def test_the_numbers_of_a_figure_are_a_table_when_asked_for(opened, analysis):
    page = opened()
    figure = page.locator("#figure-diversity_by_layer")
    assert figure.locator("table").count() == 0
    figure.locator("summary").click()
    figure.locator("th").first.wait_for()  # the table is made after the click
    titles = figure.locator("th").all_inner_texts()
    assert titles == ["model", "attention", "layer", "place", "diversity"]
    layers = [entry for model in analysis["models"] for entry in model["attentions"]]
    assert figure.locator("tbody tr").count() == len(layers)
    last = figure.locator("tbody tr").last.locator("td").last.inner_text()
    assert float(last) == pytest.approx(layers[-1]["diversity"], rel=1e-3)
