"""Nothing but its meaning is known of alpha: values of any name are written and drawn like it."""

import copy
import json

import pytest
import torch

from fairseq_entmax.analysis import document, summary
from fairseq_entmax.analysis.entries import training_records
from fairseq_entmax.analysis.measures import numbers_of
from fairseq_entmax.analysis.measures.head_values import HeadValues, head_value, may_leave_out
from fairseq_entmax.analysis.models import LoadedModel
from fairseq_entmax.analysis.report.figures import figures
from fairseq_entmax.analysis.report.page import render_page
from fairseq_entmax.analysis.statistics import MeasuredLayer
from fairseq_entmax.modules import attention_modules
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.report.test_page import embedded
from tests.support import build_model


def renamed(names):
    """A document whose last model has values by other names than alpha; ``{}`` has none."""
    analysis = synthetic_analysis(models=3, layers=2, heads=2, sentences=0)
    model = analysis["models"][2]
    for layer in model["attentions"]:
        layer["mapping"], layer["learned"] = "toy", list(names)
        for head in layer["heads"]:
            alpha = head["values"]["alpha"]
            head["values"] = {name: factor * alpha for name, factor in names.items()}
    lines = model["records"].pop("alpha")
    for name, factor in names.items():
        model["records"][name] = copy.deepcopy(lines)
        for line in model["records"][name]:
            for layers in line["values"].values():
                for row in layers.values():
                    row[:] = [factor * value for value in row]
    analysis["numbers"] = [number.as_json() for number in numbers_of(analysis)]
    return analysis


def test_the_report_has_columns_and_figures_of_every_name():
    analysis = renamed({"strength": 10.0, "density": -1.0})
    document.validate(analysis, "a.json")
    page = embedded(render_page(analysis, figures(analysis)))
    shown = {one["name"]: one for one in page["measures"]}
    # The measure of this name stands for itself
    assert {"alpha", "strength", "density", "mapping-density"} <= set(shown)
    assert shown["strength"]["isMain"]
    assert (shown["alpha"]["range"], shown["strength"]["range"]) == ([1.0, 2.0], None)
    head = analysis["models"][2]["attentions"][0]["heads"][0]
    values = next(row for row in page["layers"] if row["model"] == 2)["heads"][0]["values"]
    assert values["strength"] == pytest.approx(head["values"]["strength"])
    assert values["mapping-density"] == pytest.approx(head["values"]["density"])
    assert values["density"] == pytest.approx(head["density"])
    assert values["alpha"] is None
    drawn = [figure.name for figure in figures(analysis)][:4]
    assert drawn == [
        "strength_trajectories",
        "density_trajectories",
        "strength_histogram",
        "density_histogram",
    ]
    assert "alpha" in summary.as_table(analysis).splitlines()[0]
    assert "strength" in summary.as_table(analysis).splitlines()[0]


def test_only_what_is_known_to_be_dense_cannot_leave_keys_out():
    assert not may_leave_out({"values": {"alpha": 1.0}})
    assert may_leave_out({"values": {"alpha": 1.01}})
    assert may_leave_out({"values": {}})
    assert may_leave_out({"values": {"alpha": None}})
    assert head_value("strength").title == "strength"


def test_values_that_heads_share_are_those_of_each_of_them():
    class Toy(torch.nn.Module):
        learned = ("strength",)

        def head_values(self):
            return {"strength": torch.tensor([0.5]), "rank": torch.tensor([1.0, 2.0])}

    class Attention:
        mapping, num_heads = Toy(), 2

    layer = MeasuredLayer("cross", 0, None, Attention())
    assert HeadValues().of_heads(layer) == [
        {"values": {"strength": 0.5, "rank": 1.0}},
        {"values": {"strength": 0.5, "rank": 2.0}},
    ]
    assert HeadValues().of_layer(layer, [{}, {}]) == {"learned": ["strength"]}


def test_heads_apart_without_a_value_have_null():
    model = build_model(attn_mapping="sqpnormmax|fusedmax*2|softmax")
    module = model.encoder.layers[0].self_attn
    layer = MeasuredLayer("encoder-self", 0, None, module)
    nothing = {"alpha": None, "tv": None, "p": None, "gamma": None}
    assert [head["values"] for head in HeadValues().of_heads(layer)] == [
        {**nothing, "p": 1.5, "gamma": 1.0},
        *[{**nothing, "alpha": 2.0, "tv": 0.1}] * 2,
        {**nothing, "alpha": 1.0},
    ]


def recorded(model, name="alpha"):
    """What a line of a record has of a model."""
    found = {}
    for attention, layer, module in attention_modules(model):
        values = [
            None if one != one else one for one in module.mapping.head_values()[name].tolist()
        ]
        found.setdefault(attention, {})[str(layer)] = values
    return found


def write_lines(folder, *lines, name="alpha"):
    text = "".join(json.dumps({"update": update, name: own}) + "\n" for update, own in lines)
    (folder / f"{name}.jsonl").write_text(text)


def moved(values, by):
    return {
        attention: {
            layer: [one if one is None else one + by for one in heads]
            for layer, heads in own.items()
        }
        for attention, own in values.items()
    }


def test_records_are_read_by_the_names_that_mappings_have(tmp_path, caplog):
    model = build_model(attn_mapping="entmax")
    write_lines(tmp_path, (7, recorded(model)))
    write_lines(tmp_path, (7, recorded(model)), name="strength")
    loaded = LoadedModel("m", str(tmp_path / "m.pt"), "entmax_transformer", model, 7)
    line = {"update": 7, "values": recorded(model)}
    assert training_records(loaded) == {"alpha": [line]}
    write_lines(tmp_path, (7, moved(recorded(model), 1.5)))
    assert training_records(loaded) == {}
    assert "at update 7 alpha is not from 1 to 2" in caplog.text


def test_the_values_of_the_checkpoint_are_the_end_of_its_record(tmp_path):
    model = build_model(attn_mapping="entmax")
    own = recorded(model)
    write_lines(tmp_path, (0, moved(own, 0.002)), (5, moved(own, 0.001)), (10, moved(own, -0.001)))
    loaded = LoadedModel("m", str(tmp_path / "m.pt"), "entmax_transformer", model, 7)
    lines = training_records(loaded)["alpha"]
    assert [line["update"] for line in lines] == [0, 5, 7]
    heads = lines[-1]["values"]["encoder-self"]["0"]
    assert heads == pytest.approx(own["encoder-self"]["0"], abs=1e-6)
