"""What the report says of its own numbers, in a real browser."""

import pytest

from fairseq_entmax.analysis.report.page import render_page
from tests.analysis.report.browser import PHONE
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.report.test_agreement import ablation

pytestmark = pytest.mark.slow


def write(tmp_path, analysis):
    path = tmp_path / "report.html"
    path.write_text(render_page(analysis), encoding="utf-8")
    return path


def with_importance(sentences, error, name="entmax"):
    """An analysis whose last model's relevance is of so many sentences, with such an error."""
    analysis = synthetic_analysis(models=3, layers=2, heads=4, sentences=1, length=8)
    model = analysis["models"][2]
    model["name"] = name
    model["importance_sentences"] = {"relevance": sentences, "gradient": sentences}
    for layer in model["attentions"]:
        for head in layer["heads"]:
            head["standard_errors"] = {"relevance": error, "gradient": error}
    return analysis


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    analysis = synthetic_analysis(models=3, layers=2, heads=4, sentences=3, length=12)
    analysis["chosen"] = {"by": "typical", "lengths": [9, 14, 24, 40, 60]}
    analysis["models"][2]["importance_sentences"] = {"relevance": 512, "gradient": 96}
    for layer in analysis["models"][2]["attentions"]:
        for head in layer["heads"]:
            head["standard_errors"] = {"relevance": 0.0123, "gradient": 0.004}
    lost = ablation(analysis, lambda head: head["confidence"], model=2)
    path = tmp_path_factory.mktemp("evidence") / "report.html"
    path.write_text(render_page(analysis, ablations=[lost]), encoding="utf-8")
    return path


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE}])
def test_the_page_says_how_sure_its_numbers_are(opened, file, options):
    page = opened(file, **options)
    said = page.locator("#evidence").inner_text()
    assert "512 of 1,000" in said
    assert "± 0.012" in said
    assert "More sentences, by --relevance-sentences of analyze" in said
    assert "95 %" in said
    assert "alpha of entmax" in said
    assert "half of the data has 14 to 40 tokens" in page.locator("#chosen").inner_text()
    words = page.locator("#role-words").inner_text()
    assert "50 %" in words
    assert "dense" in words
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]


def test_what_is_lost_without_a_head_is_a_column_and_a_colour(opened, file):
    page = opened(file)
    titles = page.locator("#heads-table th").all_inner_texts()
    assert any(title.startswith("Δ loss without it") for title in titles)
    page.select_option("#measure", "ablation-loss")
    assert "the head alone is removed" in page.locator("#measure-meaning").inner_text()


def test_the_error_stands_beside_the_share_in_the_details(opened, file):
    page = opened(file)
    page.select_option("#heads-model", "2")
    page.locator("#heads-table tbody tr:not([hidden])").first.click()
    assert "± 0.012" in page.locator("#details-body").inner_text()


def test_a_goal_that_all_sentences_miss_is_said(opened, tmp_path):
    page = opened(write(tmp_path, with_importance(1000, 0.0123)))
    said = " ".join(page.locator("#evidence").inner_text().split())
    assert "Relevance of entmax took all sentences of the data" in said
    assert "above 0.005" in said
    assert "More sentences, by" not in said


def test_of_one_sentence_there_is_no_standard_error(opened, tmp_path):
    page = opened(write(tmp_path, with_importance(1, None)))
    rows = page.locator("#evidence tr", has_text="Relevance of entmax")
    assert "of one sentence: no standard error" in rows.last.inner_text()


@pytest.mark.parametrize("name", ["entmax", "a name of several long words, as models have"])
def test_a_phone_shows_the_standard_errors(opened, tmp_path, name):
    page = opened(write(tmp_path, with_importance(512, 0.004, name)), viewport=PHONE)
    box = page.get_by_role("region", name="Sentences behind relevance and gradient")
    inner, outer = box.evaluate("box => [box.scrollWidth, box.clientWidth]")
    assert inner <= outer


def test_an_option_is_not_broken_over_lines(opened, tmp_path):
    page = opened(write(tmp_path, with_importance(512, 0.004)), viewport=PHONE)
    for width in range(300, 420, 10):
        page.set_viewport_size({"width": width, "height": 700})
        lines = page.evaluate(
            """() => [...document.querySelectorAll("#evidence .option")]
                 .map((one) => one.getClientRects().length)"""
        )
        assert lines == [1] * len(lines) != []
