"""Attention maps in a real browser."""

import numpy as np
import pytest

from tests.analysis.report.browser import Watched
from tests.analysis.report.page_actions import (
    MARKUP,
    agrees,
    key,
    map_of,
    point_at,
    select,
    shades_of,
    shown_weight,
    wait_for_map,
    weights_of,
    zeros_of,
)

pytestmark = pytest.mark.slow


def test_pointer_and_arrow_keys_show_every_models_weight_within_its_error(opened, analysis):
    page = opened()
    select(page, 2, "cross", 1, 1)
    shape = weights_of(analysis, 0, 0, "cross", 1, 1).shape
    sentence = analysis["maps"][0]
    for query in range(0, shape[0], 3):
        for place in range(1, shape[1], 4):
            point_at(page, 1, query, place)
            text = f"predicting “{sentence['targets'][query]}” → “{sentence['source'][place]}”"
            assert page.locator("#readout .tokens").inner_text() == text
            for model in range(3):
                weight = weights_of(analysis, 0, model, "cross", 1, 1)[query, place]
                assert agrees(shown_weight(page, model), weight)
    select(page, 2, "encoder-self", 0, 1)
    map_of(page, 2).focus()
    for name in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(name)
    assert agrees(shown_weight(page, 2), weights_of(analysis, 0, 2, "encoder-self", 0, 1)[2, 1])


@pytest.mark.parametrize(
    ("attention", "scheme"), [("encoder-self", "light"), ("decoder-self", "dark")]
)
def test_exactly_the_zeros_are_hatched_and_the_future_is_blank(opened, analysis, attention, scheme):
    page = opened(scheme=scheme)
    select(page, 2, attention, 0, 1)
    weights = weights_of(analysis, 0, 2, attention, 0, 1)
    future = np.triu(np.ones(weights.shape, bool), 1) & (attention == "decoder-self")
    is_zero = (weights == 0) & ~future
    assert is_zero.any()
    assert (zeros_of(page, 2, weights.shape) == is_zero).all()
    shades = shades_of(page, 2)
    assert ((shades[..., 3] == 0) == future).all()
    spread = np.ptp(shades[..., :3], axis=2)
    # Grey is told from a colour by the difference between its channels
    assert spread[is_zero].max() < 20 < 50 < spread[~is_zero & ~future].min()
    if future.any():
        point_at(page, 2, 1, 4)
        assert shown_weight(page, 2) == "future, masked"
    # A larger softmax weight has more contrast: darker on a light page
    weights = weights_of(analysis, 0, 0, attention, 0, 1)[~future]
    light = shades_of(page, 0)[..., :3].sum(axis=2)[~future][np.argsort(weights)]
    steps = np.diff(light) * (1 if scheme == "dark" else -1)
    assert steps.min() >= -2 < 0 < steps.max()


def test_markup_in_a_token_is_text_and_the_last_quick_choice_wins(opened):
    page = opened()
    page.evaluate(
        "const all = document.querySelectorAll('input[name=sentence]');all[1].click(); all[2].click(); undefined"
    )
    page.wait_for_timeout(500)  # long enough for a race between the choices
    select(page, 0, "encoder-self", 0, 0)
    point_at(page, 0, 1, 0)
    assert MARKUP in page.locator("#readout").text_content()
    assert page.locator("img").count() == 0


def test_foreign_scripts_do_not_run(browser, file):
    watched = Watched(browser, file)
    watched.page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", '<b onclick="window.ran = true">b</b>');
          document.body.lastElementChild.click();
        }"""
    )
    assert watched.page.evaluate("window.ran") is None
    assert len(watched.complaints) == 2
    assert all("Content Security Policy" in complaint for complaint in watched.complaints)
    watched.close()


def test_every_head_is_shown_small_and_enlarged_by_a_click(opened):
    page = opened()
    select(page, 0, "cross", 0, 0)
    page.check("input[name=view][value=all]")
    page.wait_for_selector("#map-panels .thumbnails img")
    assert page.locator("#map-panels img").count() == 3 * 2 * 4
    page.locator(f'#map-panels button[data-head="{key(2, "cross", 1, 3)}"]').click()
    wait_for_map(page, 2, "cross", 1, 3)
    page.wait_for_function("document.querySelectorAll('#map-panels svg.map').length === 3")


def test_a_panel_may_show_another_head_and_says_if_there_is_none(opened, analysis):
    page = opened()
    select(page, 0, "encoder-self", 0, 3)
    panels = page.locator("#map-panels .panel")
    assert "no such head" in panels.nth(1).inner_text()
    assert panels.nth(1).locator("svg").count() == 0
    select(page, 0, "cross", 0, 0)
    panels.nth(2).locator("select").nth(1).select_option("3")
    page.wait_for_selector("#map-panels svg[aria-label*='head 3']")
    labels = [map_of(page, model).get_attribute("aria-label") for model in range(3)]
    assert ["head 0" in labels[0], "head 0" in labels[1], "head 3" in labels[2]] == [True] * 3
    point_at(page, 2, 1, 1)
    assert agrees(shown_weight(page, 2), weights_of(analysis, 0, 2, "cross", 0, 3)[1, 1])
    page.locator("#map-models input").nth(1).uncheck()
    page.wait_for_function("document.querySelectorAll('#map-panels .panel').length === 2")
    assert page.locator("#map-panels h3").all_inner_texts() == ["softmax", "entmax"]
