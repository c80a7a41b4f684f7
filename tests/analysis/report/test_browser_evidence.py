"""What the report says of its own numbers, in a real browser."""

import pytest

from fairseq_entmax.analysis.report.page import render_page
from tests.analysis.report.browser import PHONE
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.report.test_agreement import ablation

pytestmark = pytest.mark.slow


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
