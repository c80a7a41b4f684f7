"""Uncertainty, equal weights, generated text and classes of the report, in a real browser."""

import pytest

from tests.analysis import brute_force
from tests.analysis.report.browser import PHONE
from tests.analysis.report.equal_weights import CLUSTERS, RUNS, give_groups
from tests.analysis.report.page_actions import (
    agrees,
    cell_texts,
    choose_measure,
    key,
    layer_of,
    layout_of,
    map_of,
    point_at,
    select,
    shown_weight,
    write,
)
from tests.analysis.report.synthetic import heads_of, synthetic_analysis
from tests.analysis.report.test_agreement import ablated

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    analysis = synthetic_analysis(models=3, layers=2, heads=4, sentences=3, length=12)
    for head in heads_of(analysis["models"][2]):
        head["standard_errors"] = {"relevance": 0.0123, "gradient": 0.004}
    analysis = ablated(analysis, lambda head: head["confidence"], model=2)
    return write(tmp_path_factory.mktemp("evidence"), analysis)


def test_the_page_shows_the_uncertainty_of_its_numbers(opened, file):
    page = opened(file, viewport=PHONE)
    shown = page.locator("#evidence").inner_text()
    for words in ("95 %", "cannot be told from chance"):
        assert words in shown
    assert "dense" in page.locator("#role-words").inner_text()
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]


def test_a_page_without_such_numbers_has_no_section_for_them(opened, tmp_path):
    analysis = synthetic_analysis(models=1, layers=1, heads=2, sentences=1, length=5)
    page = opened(write(tmp_path, analysis))
    for what in ("#evidence", "nav a[href='#evidence']"):
        assert (page.locator(what).count(), page.locator(what).is_visible()) == (1, False)


def test_the_loss_without_a_head_is_a_column_and_a_colour_with_significance(opened, file):
    page = opened(file)
    choose_measure(page, "ablation-loss")
    assert "if only this head is removed" in page.locator("#measure-meaning").inner_text()
    texts = cell_texts(page)
    starred = {name for name, text in texts.items() if text.endswith("*")}
    assert starred == {key(2, "cross", 1, 2)}
    assert texts[key(0, "cross", 1, 2)] == "–"
    select(page, 2, "cross", 1, 2)
    assert "± 0.012" in page.locator("#details-body").inner_text()


# Equal weights

SOFTMAX, OSCARMAX, FUSEDMAX = range(3)


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    """A report of softmax, oscarmax and fusedmax, and rows of weights by model."""
    analysis = synthetic_analysis(models=3, layers=1, heads=3, sentences=1, length=24)
    exact = {}
    for model, made in ((OSCARMAX, CLUSTERS), (FUSEDMAX, RUNS)):
        exact[model] = give_groups(analysis, model, made)[0, "encoder-self", 0][1].tolist()
        analysis["models"][model]["name"] = f"{made[0]} {model}"
    path = write(tmp_path_factory.mktemp("grouped"), analysis)
    return path, exact


def boxes(page, panel, what):
    """Position in cells and text of what is drawn over a map."""
    cell = layout_of(page, panel)[2]
    found = map_of(page, panel).locator(what).evaluate_all(
        "all => all.map(e => [...['x', 'y', 'width'].map(n => Number(e.getAttribute(n))), e.textContent])"
    )  # fmt: skip
    return [(x / cell, y / cell, width / cell, text) for x, y, width, text in found]


def test_a_run_is_one_box_also_under_the_pointer(opened, grouped):
    path, exact = grouped
    page = opened(path)
    select(page, FUSEDMAX, "encoder-self", 0, 1)
    rows = enumerate(exact[FUSEDMAX])
    runs = [(q, run, row) for q, row in rows for run in brute_force.runs(row) if len(run) > 1]
    drawn = boxes(page, FUSEDMAX, ".run")
    found = {(int(y), int(x), round(x + width)) for x, y, width, _ in drawn}
    assert found == {(query, run[0], run[-1] + 1) for query, run, _ in runs}
    assert len(drawn) == len(runs) > 2
    for query, run, row in runs[:4]:
        point_at(page, FUSEDMAX, query, run[-1])
        x, _, width, _ = boxes(page, FUSEDMAX, ".cursor .strong")[0]
        assert (int(x), round(x + width)) == (run[0], run[-1] + 1)
        assert agrees(shown_weight(page, FUSEDMAX), row[run[0]])
    assert page.locator("#map-legend .segment").count() == 1
    assert boxes(page, SOFTMAX, ".run, .mark") == []


def test_separate_keys_of_a_cluster_share_a_mark_that_no_other_cluster_has(opened, grouped):
    path, exact = grouped
    page = opened(path)
    select(page, OSCARMAX, "encoder-self", 0, 1)
    marks = {(int(y), x): text for x, y, _, text in boxes(page, OSCARMAX, ".mark")}
    most = 0
    for query, row in enumerate(exact[OSCARMAX]):
        found = []
        for cluster in brute_force.clusters(row):
            runs = [run for run in brute_force.runs(row) if run[0] in cluster]
            middles = [(query, (run[0] + run[-1] + 1) / 2) for run in runs]
            own = [marks.pop(middle) for middle in middles if middle in marks]
            assert len(own) == (len(runs) if len(runs) > 1 else 0)
            if own:
                assert len(set(own)) == 1
                found.append(own[0])
                point_at(page, OSCARMAX, query, cluster[0])
                assert map_of(page, OSCARMAX).locator(".cursor .strong").count() == len(runs)
        assert len(set(found)) == len(found)
        most = max(most, len(found))
    assert not marks
    assert most > 1


# Generated text, and copy heads


def test_a_page_of_generated_text_names_the_search_and_marks_copy_heads(opened, tmp_path):
    analysis = synthetic_analysis(models=2, layers=2, heads=4, sentences=1, length=9)
    analysis |= {"of": "generated", "search": {"task": "translation", "beam": 7}}
    for model in analysis["models"]:
        model["generated"] = {"tokens": 1234, "empty": 1, "longest": 17}
    analysis["models"][1]["copying"] = {"share": 0.43, "unreachable": 2}
    layer_of(analysis, 1, "cross", 1)["copy_heads"] = [2]
    (whole,) = analysis["maps"]
    first, second = whole["models"]
    analysis["maps"] = [
        {**whole, "model": own, "models": maps}
        for own, maps in enumerate(([first, []], [[], second]))
    ]
    page = opened(write(tmp_path, analysis))
    line = page.locator("#data-line").inner_text()
    assert "text that each model generated: task translation, beam 7" in line
    titles = page.locator("#models-table th[scope=col]").all_inner_texts()
    cells = page.locator("#models-table tbody tr").nth(1).locator("td").all_inner_texts()
    row = dict(zip(titles[1:], cells, strict=True))
    names = ("Generated tokens", "Outputs of maximum length", "Copied (1 − g)")
    assert [row[name] for name in names] == ["1,234", "17", "43 %"]
    assert page.locator('#grids path[stroke="#14161a"]').count() == 1
    names = page.locator(".sentence-number").all_inner_texts()
    assert names == ["#0 by softmax", "#0 by entmax15"]
    select(page, 1, "cross", 0, 1)
    page.locator("#sentence-list input").nth(1).check()
    page.wait_for_function("document.querySelector('#map-panels').dataset.shown?.startsWith('1 ')")
    panels = page.locator("#map-panels .panel")
    assert [panels.nth(number).locator("svg").count() for number in range(2)] == [0, 1]


# Texts with labels


def test_the_page_shows_the_accuracy_of_classifiers(opened, of_pairs, tmp_path):
    page = opened(write(tmp_path, of_pairs))
    titles = page.locator("#models-table th[scope=col]").all_inner_texts()
    assert {"Accuracy", "Loss (nats per text)"} <= set(titles)
    assert "Texts with labels, valid of" in page.locator("#data-line").inner_text()
    row = page.locator("#models-table tbody tr").nth(1).locator("th, td").all_inner_texts()
    share = next(one for one in of_pairs["models"] if one["name"] == row[0])["accuracy"]["share"]
    assert row[titles.index("Accuracy")] == f"{100 * share:.1f} %"
