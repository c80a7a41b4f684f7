"""A small analysis, and reports that are opened in a real browser."""

import pytest

from fairseq_entmax.analysis.report.figures import figures
from tests.analysis.report.browser import Watched, launched
from tests.analysis.report.page_actions import MARKUP, write
from tests.analysis.report.synthetic import lose_head, synthetic_analysis


@pytest.fixture
def small():
    return synthetic_analysis(models=3, layers=2, heads=3, sentences=0)


@pytest.fixture(scope="module")
def analysis():
    """Three small models; the second has lost a head, and one token is markup."""
    analysis = synthetic_analysis(models=3, layers=2, heads=4, sentences=3, length=12)
    lose_head(analysis, 1, 3)
    analysis["maps"][2]["source"][0] = MARKUP
    return analysis


@pytest.fixture(scope="module")
def file(analysis, tmp_path_factory):
    return write(tmp_path_factory.mktemp("report"), analysis, figures(analysis))


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture
def opened(browser, file):
    """A function that opens the report; there must be no errors and no requests."""
    pages = []

    def open_page(path=file, **options):
        watched = Watched(browser, path, **options)
        pages.append(watched)
        return watched.page

    yield open_page
    for watched in pages:
        watched.close()
        assert watched.complaints == []
        assert watched.requests == []


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The report of three models with 6 layers of 8 heads, and four sentences."""
    analysis = synthetic_analysis(sentences=4)
    return write(tmp_path_factory.mktemp("large"), analysis, figures(analysis))
