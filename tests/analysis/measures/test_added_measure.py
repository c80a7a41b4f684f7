"""A custom measure: its names, and how it is computed, written and described.

The example of docs/extending.md tests that ``analyze`` computes it and the report shows it.
"""

import pytest

from fairseq_entmax.analysis import document
from fairseq_entmax.analysis.document.schema import schema
from fairseq_entmax.analysis.measures import (
    _MEASURES,
    Number,
    WeightMeasure,
    measures,
    numbers_of,
    register_measure,
)
from fairseq_entmax.analysis.passes.statistics import LayerStatistics
from fairseq_entmax.analysis.report.page import render_page
from fairseq_entmax.attentions import CROSS
from tests.analysis.report.synthetic import every_head, synthetic_analysis
from tests.analysis.report.test_page import embedded
from tests.analysis.test_statistics import batch_of, cut, random_weights, table


class Introspection(WeightMeasure):
    """The weight of a position on itself; null in cross-attention."""

    name, title = "introspection", "Introspection"
    meaning = "mean weight of a query on its own position"
    source = "Narcissus 2024, section 1"
    is_main = in_summary = True

    def update(self, weights, sums):
        if weights.attention != CROSS:
            own = weights.weights.diagonal(dim1=2, dim2=3)
            sums.add_mean("introspection", own, weights.queries.real)


class Surprise(WeightMeasure):
    """Two numbers that may be negative."""

    name = "surprise"
    numbers = tuple(
        Number(
            f"{one}-surprise", "Surprise", "its logarithm", ("surprise", one), largest=0, least=None
        )
        for one in ("first", "last")
    )

    def update(self, weights, sums):
        raise RuntimeError("no surprise")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr("fairseq_entmax.analysis.measures._MEASURES", dict(_MEASURES))
    for measure in (Introspection(), Surprise()):
        register_measure(measure)


@pytest.mark.parametrize("attention", ["encoder-self", "cross"])
def test_its_numbers_are_means_over_the_queries_of_all_batches(attention):
    statistics, found = LayerStatistics(attention, 3, ["introspection"]), []
    for sentences in ([[4, 5, 6, 2], [7, 2]], [[8, 9, 2]]):
        batch = batch_of(sentences, [one[::-1] for one in sentences], table())
        weights = random_weights(batch, attention)
        statistics.update(weights, batch)
        found += cut(weights, batch, attention)
    for number, head in enumerate(statistics.results()["heads"]):
        own = [row[n] for heads in found for n, row in enumerate(heads[number])]
        mean = pytest.approx(sum(own) / len(own), abs=1e-6)
        assert head["introspection"] == (None if attention == CROSS else mean)
        assert head["entropy"] is head["surprise"] is None
    with pytest.raises(ValueError, match="the measure surprise fails: RuntimeError: no surprise"):
        LayerStatistics(attention, 3, ["surprise"]).update(weights, batch)


def test_schema_document_and_report_include_it():
    analysis = synthetic_analysis(models=1, layers=1, heads=2, sentences=0)
    for head in every_head(analysis):
        head |= {"introspection": 0.25, "surprise": {"first": -3, "last": -1}}
    analysis["numbers"] = [number.as_json() for number in numbers_of(analysis)]
    document.validate(analysis, "a.json")
    shapes = schema()["$defs"]["head"]["properties"]
    assert shapes["introspection"]["description"] == (
        "Mean weight of a query on its own position (Narcissus 2024, section 1)."
    )
    assert shapes["surprise"]["required"] == ["first", "last"]
    page = embedded(render_page(analysis))
    shown = {one["name"]: one for one in page["measures"]}
    assert [shown["introspection"][name] for name in ("title", "isMain")] == ["Introspection", True]
    values = page["layers"][0]["heads"][1]["values"]
    assert [values[name] for name in ("introspection", "first-surprise")] == [0.25, -3]
    for name, wrong in (("introspection", 1.5), ("surprise", {"first": -3})):
        original = head[name]
        head[name] = wrong
        with pytest.raises(ValueError, match=rf"heads\[1\]\.{name}"):
            document.validate(analysis, "a.json")
        head[name] = original


def test_documents_without_the_measure_can_be_read():
    analysis = synthetic_analysis(models=1, layers=1, heads=1, sentences=0)
    own = ("introspection", "surprise")
    analysis["numbers"] = [one for one in analysis["numbers"] if one["place"][0] not in own]
    document.validate(analysis, "a.json")
    head = embedded(render_page(analysis))["layers"][0]["heads"][0]
    assert not {*own, "first-surprise"} & {*head["values"]}
    assert head["values"]["density"] is not None


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("density", "uses the name 'density', as the measure density does"),
        ("a b", "is named 'a b'"),
    ],
)
def test_names_in_use_are_refused(own, message):
    class Second(Introspection):
        name = own

    with pytest.raises(ValueError, match=message):
        register_measure(Second())
    assert "a b" not in [measure.name for measure in measures()]
