"""A measure of one's own: a class and a call, and it is measured, written, described and drawn."""

import json

import pytest
import torch

from fairseq_entmax.analysis import document, summary
from fairseq_entmax.analysis.analyze import analyse, parser
from fairseq_entmax.analysis.arguments import chosen_measures
from fairseq_entmax.analysis.loading import load_dataset, parse, setup_task
from fairseq_entmax.analysis.measures import (
    _MEASURES,
    Number,
    WeightMeasure,
    measures,
    register_measure,
)
from fairseq_entmax.analysis.recorder import record_attention
from fairseq_entmax.analysis.report.page import render_page
from fairseq_entmax.analysis.schema import schema
from fairseq_entmax.analysis.sentences import samples
from fairseq_entmax.analysis.statistics import LayerStatistics
from fairseq_entmax.attentions import CROSS
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.report.test_page import embedded
from tests.analysis.test_analyze import _build as build
from tests.analysis.test_models import save
from tests.analysis.test_statistics import one_sentence
from tests.support import spread_scores


class Introspection(WeightMeasure):
    """How much a position looks at itself; null in cross."""

    name, title = "introspection", "Introspection"
    meaning = "mean weight of a query on its own position"
    source = "Narcissus 2024, section 1"
    is_main = in_summary = True

    def update(self, weights, sums):
        if weights.attention != CROSS:
            own = weights.weights.diagonal(dim1=2, dim2=3)
            sums.add_mean("introspection", own, weights.queries.real)


class Surprise(WeightMeasure):
    """A number that may be negative."""

    name, title, meaning = "surprise", "Surprise", "logarithm of the first weight"
    largest, least = 0, None

    def update(self, weights, sums):
        raise RuntimeError("no surprise")


def test_a_measure_that_fails_is_named(monkeypatch):
    monkeypatch.setattr("fairseq_entmax.analysis.measures._MEASURES", dict(_MEASURES))
    register_measure(Surprise())
    statistics = LayerStatistics(CROSS, 2, ["surprise"])
    with pytest.raises(ValueError, match="the measure surprise fails: RuntimeError: no surprise"):
        statistics.update(torch.full((1, 2, 3, 3), 1 / 3), one_sentence(3))


class Halves(WeightMeasure):
    """The weight on each half of the keys of a batch."""

    name = "halves"
    numbers = (
        Number("left-half", "Left half", "weight on the left half", ("halves", "left")),
        Number("right-half", "Right half", "weight on the right half", ("halves", "right")),
    )

    def update(self, weights, sums):
        middle = weights.weights.size(3) // 2
        for name, keys in (("left", slice(None, middle)), ("right", slice(middle, None))):
            sums.add_mean(name, weights.weights[..., keys].sum(dim=3), weights.queries.real)


@pytest.fixture(scope="module")
def registered():
    for measure in (Introspection(), Halves()):
        register_measure(measure)
    yield
    for name in ("introspection", "halves"):
        _MEASURES.pop(name, None)


@pytest.fixture(scope="module")
def analysed(registered, data, tmp_path_factory):
    """The document, the task, and the model that it is of."""
    path = str(tmp_path_factory.mktemp("own") / "m.pt")
    given = [f"{data}/bin", f"--path={path}", "--cpu", "--no-progress-bar", "--num-workers=0"]
    args = parse(parser(), [*given, "--sentences="])
    task = setup_task(args)
    extra = {"max_source_positions": 1024, "max_target_positions": 1024}
    extra |= {"share_all_embeddings": True, "attn_mapping": "entmax15"}
    model = spread_scores(build(task, "entmax_transformer", extra), 8)
    save(path, model, "entmax_transformer", ("es", "en"), **extra)
    wanted = chosen_measures("introspection, halves,density")
    return analyse(args, wanted, task), task, model


def test_its_numbers_are_in_the_document(analysed):
    analysis, task, model = analysed
    dataset = load_dataset(task, "valid")
    totals = {}
    for sample in samples(dataset, range(len(dataset)), torch.device("cpu")):
        attention, _ = record_attention(model, sample)
        for name in ("encoder-self", "decoder-self"):
            for layer, weights in attention[name].items():
                for head in range(weights.size(1)):
                    rows = weights[0, head].tolist()
                    own = totals.setdefault((name, layer, head), [])
                    own += [row[place] for place, row in enumerate(rows)]
    assert totals
    for layer in analysis["models"][0]["attentions"]:
        for head in layer["heads"]:
            own = totals.get((layer["attention"], layer["layer"], head["head"]))
            if layer["attention"] == CROSS:
                assert head["introspection"] is None
            else:
                assert head["introspection"] == pytest.approx(sum(own) / len(own), abs=1e-6)
            assert sum(head["halves"].values()) == pytest.approx(1, abs=1e-6)
            assert head["entropy"] is None
    assert analysis["settings"]["measures"] == ["density", "introspection", "halves"]


def test_the_schema_has_it_and_refuses_what_it_cannot_be(analysed):
    analysis = json.loads(json.dumps(analysed[0]))
    document.validate(analysis, "a.json")
    head = schema()["$defs"]["head"]
    assert {"introspection", "halves"} <= set(head["required"])
    shape = head["properties"]["introspection"]
    assert shape["description"] == (
        "Mean weight of a query on its own position (Narcissus 2024, section 1)."
    )
    assert head["properties"]["halves"]["required"] == ["left", "right"]
    analysis["models"][0]["attentions"][0]["heads"][0]["introspection"] = 1.5
    with pytest.raises(ValueError, match=r"heads\[0\]\.introspection"):
        document.validate(analysis, "a.json")


def test_the_report_titles_explains_lists_and_colours_by_it(analysed):
    analysis = analysed[0]
    page = embedded(render_page(analysis, measure="introspection"))
    assert page["measure"] == "introspection"
    shown = {one["name"]: one for one in page["measures"]}
    own = shown["introspection"]
    assert (own["title"], own["isMain"]) == ("Introspection", True)
    assert own["meaning"] == "mean weight of a query on its own position"
    entry = analysis["models"][0]["attentions"][0]["heads"][1]
    values = page["layers"][0]["heads"][1]["values"]
    assert values["introspection"] == pytest.approx(entry["introspection"], rel=1e-6)
    assert values["left-half"] == pytest.approx(entry["halves"]["left"], rel=1e-6)
    assert "introspection" in summary.as_table(analysis).splitlines()[0]


def test_who_has_the_measure_reads_documents_that_lack_it(registered):
    analysis = synthetic_analysis(models=1, layers=1, heads=1, sentences=0)
    own = ("introspection", "halves")
    analysis["numbers"] = [one for one in analysis["numbers"] if one["place"][0] not in own]
    document.validate(analysis, "a.json")
    head = analysis["models"][0]["attentions"][0]["heads"][0]
    assert head["introspection"] is head["halves"] is None
    assert head["density"] is not None
    names = [one["name"] for one in embedded(render_page(analysis))["measures"]]
    assert "introspection" not in names


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("density", "calls something 'density', as the measure density does"),
        ("a b", "is called 'a b'"),
    ],
)
def test_names_in_use_are_refused(own, message):
    class Second(Introspection):
        name = own

    with pytest.raises(ValueError, match=message):
        register_measure(Second())
    assert "a b" not in [measure.name for measure in measures()]
