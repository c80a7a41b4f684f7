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


def test_the_encoders_attention_is_told_from_what_pools(opened):
    page = opened()
    titles = page.locator("#models-table th[scope=col]").all_inner_texts()
    rows = page.locator("#models-table tbody tr")
    cells = [rows.nth(number).locator("th, td").all_inner_texts() for number in range(3)]
    found = [dict(zip(titles, row, strict=True)) for row in cells]
    assert [row["Attention (encoder-self)"] for row in found] == ["softmax", "entmax15", "entmax"]
    assert [row["Pooling"] for row in found] == ["softmax", "sparsemax", "entmax"]


def test_the_search_says_that_it_looks_through_texts(opened):
    assert opened().get_attribute("#sentence-search", "placeholder") == "words of the text"


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
    weights = [one for one, token in zip(weights, entry["source"], strict=True) if token != "</s>"]
    spans = text.locator(".weighted > span")
    assert spans.count() == len(weights)
    classes = spans.evaluate_all("all => all.map(span => span.className)")
    assert [name == "unselected" for name in classes] == [weight == 0 for weight in weights]
    titles = spans.evaluate_all("all => all.map(span => span.title)")
    for title, weight in zip(titles, weights, strict=True):
        assert title == "exactly 0" if weight == 0 else title.startswith("weight ")


def test_the_halves_of_a_pair_have_their_names_and_no_marks_of_their_ends(opened, analysis):
    text = opened().locator("#class-texts .text").nth(1)
    halves = text.locator(".weighted")
    assert halves.locator(".half").all_inner_texts() == ["Premise: ", "Hypothesis: "]
    source = analysis["maps"][1]["source"]
    end = source.index("</s>")
    for half, tokens in zip(halves.all(), (source[:end], source[end + 1 : -1]), strict=True):
        assert half.locator("> span").count() == len(tokens)
    assert "|" not in text.inner_text()
    assert "</s>" not in text.inner_text()


def test_a_text_alone_has_no_halves_and_names_its_end_where_that_has_weight(
    opened, of_labelled, tmp_path
):
    analysis = copy.deepcopy(of_labelled)
    for rows in analysis["maps"][1]["classified"][0]["pooling"].values():
        for row in rows:
            row[:] = [0.0] * (len(row) - 1) + [1.0]
    path = tmp_path / "report.html"
    path.write_text(render_page(analysis), encoding="utf-8")
    page = opened(path)
    assert page.locator("#class-texts .half").count() == 0
    texts = page.locator("#class-texts .weighted").all_inner_texts()
    assert ["(end of text)" in text for text in texts] == [False, True, False]


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
    searched = watched.page.get_attribute("#sentence-search", "placeholder")
    assert searched == "words of the source or the target"
    titles = watched.page.locator("#models-table th[scope=col]").all_inner_texts()
    assert "Attention" in titles
    assert "Pooling" not in titles
    watched.close()
    assert watched.complaints == []
