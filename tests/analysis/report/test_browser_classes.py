"""The words that a classifier's attention selects, in a real browser."""

import copy

import pytest

from fairseq_entmax.analysis.report.figures import figures
from fairseq_entmax.analysis.report.page import render_page
from tests.analysis.report.browser import save_screenshot
from tests.analysis.report.page_actions import MARKUP

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def analysis(of_pairs):
    """Of pairs; one word and one label are markup."""
    of_pairs = copy.deepcopy(of_pairs)
    of_pairs["data"]["labels"][0] = MARKUP
    of_pairs["maps"][0]["source"][0] = MARKUP
    words = of_pairs["models"][1]["classification"]["pooling"][0]["words"][1]
    words[0]["word"] = MARKUP
    return of_pairs


@pytest.fixture(scope="module")
def file(analysis, tmp_path_factory):
    path = tmp_path_factory.mktemp("classes") / "report.html"
    path.write_text(render_page(analysis, figures(analysis)), encoding="utf-8")
    return path


def choose(page, name, value):
    page.select_option(f"#classes-{name}", value)


def test_the_page_says_what_pools_and_how_often_models_are_right(opened, analysis, tmp_path):
    page = opened()
    save_screenshot(page, "classes", tmp_path, full_page=True)
    titles = page.locator("#models-table th[scope=col]").all_inner_texts()
    assert "Accuracy" in titles
    assert "Loss (nats a text)" in titles
    assert "2 classes of texts" in page.locator("#data-line").inner_text()
    rows = page.locator("#pooling-table tbody tr")
    # Hypothesis and premise, of two heads in one of three models
    assert rows.count() == 8
    assert rows.nth(0).locator("td").all_inner_texts()[:3] == ["softmax", "hypothesis", "softmax"]


def test_the_words_of_a_class_follow_the_model_and_are_text(opened, analysis):
    page = opened()
    choose(page, "model", "1")
    cards = page.locator("#class-words .class")
    assert cards.count() == 2
    assert cards.nth(0).locator("h4").inner_text() == MARKUP
    first = cards.nth(1).locator("tbody tr").first
    assert first.locator("th").inner_text() == MARKUP
    (row, *_) = analysis["models"][1]["classification"]["pooling"][0]["words"][1]
    assert first.locator("td").nth(2).inner_text() == str(row["count"])


def test_a_text_shows_the_weight_of_every_word_and_of_none_that_is_left_out(opened, analysis):
    page = opened()
    choose(page, "model", "1")
    choose(page, "head", "0")
    entry = analysis["maps"][1]
    said = entry["classified"][1]["pooling"]
    weights = [max(rows) for rows in zip(said["hypothesis"][0], said["premise"][0], strict=True)]
    text = page.locator("#class-texts .text").nth(1)
    spans = text.locator(".weighted > span")
    assert spans.count() == len(weights)
    classes = spans.evaluate_all("all => all.map(span => span.className)")
    assert [name == "unselected" for name in classes] == [weight == 0 for weight in weights]
    titles = spans.evaluate_all("all => all.map(span => span.title)")
    for title, weight in zip(titles, weights, strict=True):
        assert title == "exactly 0" if weight == 0 else title.startswith("weight ")


def test_the_words_of_texts_are_text_and_not_markup(opened):
    page = opened()
    assert MARKUP in page.locator("#class-texts .text").first.inner_text()


def test_pages_of_other_models_have_no_section_of_words(browser, tmp_path):
    from tests.analysis.report.browser import Watched
    from tests.analysis.report.synthetic import synthetic_analysis

    path = tmp_path / "report.html"
    path.write_text(
        render_page(synthetic_analysis(models=1, layers=1, sentences=1, length=9)), encoding="utf-8"
    )
    watched = Watched(browser, path)
    assert not watched.page.locator("#classes").is_visible()
    assert not watched.page.locator("#classes-link").is_visible()
    watched.close()
    assert watched.complaints == []
