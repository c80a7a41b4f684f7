"""Learned values of any name are recorded and drawn like alpha; only alpha has a known meaning."""

import copy
import json

import pytest
import torch

from fairseq_entmax.analysis import document
from fairseq_entmax.analysis.document import summary
from fairseq_entmax.analysis.document.model_entries import training_records
from fairseq_entmax.analysis.measures import numbers_of
from fairseq_entmax.analysis.measures.head_values import HeadValues, may_leave_out
from fairseq_entmax.analysis.models.loaded import LoadedModel
from fairseq_entmax.analysis.passes.statistics import MeasuredLayer
from fairseq_entmax.analysis.report.figures import figures
from fairseq_entmax.analysis.report.page import render_page
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.report.test_page import embedded
from tests.analysis.test_models import alphas_of
from tests.support import build_model


def renamed(names):
    """A document whose last model has values under other names than alpha; ``{}`` for no values."""
    analysis = synthetic_analysis(models=3, layers=2, heads=2, sentences=0)
    model = analysis["models"][2]
    for layer in model["attentions"]:
        layer["mapping"], layer["learned"] = "toy", list(names)
        for head in layer["heads"]:
            alpha = head["values"]["alpha"]
            head["values"] = {name: factor * alpha for name, factor in names.items()}
    lines = model["records"].pop("alpha")
    model["records"] = {name: copy.deepcopy(lines) for name in names}
    analysis["numbers"] = [number.as_json() for number in numbers_of(analysis)]
    return analysis


def test_the_report_has_columns_and_figures_for_any_name():
    analysis = renamed({"strength": 10.0, "density": -1.0})
    document.validate(analysis, "a.json")
    page = embedded(render_page(analysis, figures(analysis)))
    shown = {one["name"]: one for one in page["measures"]}
    # The measure keeps its name, and the value gets a prefix
    assert {"alpha", "strength", "density", "mapping-density"} <= set(shown)
    assert shown["strength"]["isMain"]
    assert (shown["alpha"]["range"], shown["strength"]["range"]) == ([1.0, 2.0], None)
    head = analysis["models"][2]["attentions"][0]["heads"][0]
    values = next(row for row in page["layers"] if row["model"] == 2)["heads"][0]["values"]
    own = [values[name] for name in ("strength", "mapping-density", "density")]
    assert own == pytest.approx([*head["values"].values(), head["density"]])
    drawn = [figure.name for figure in figures(analysis)][:4]
    names = ("strength", "density")
    assert drawn == [f"{name}_{kind}" for kind in ("trajectories", "histogram") for name in names]
    assert {"alpha", "strength"} <= set(summary.as_table(analysis).splitlines()[0].split())


def test_only_a_known_alpha_of_1_excludes_zeros():
    values = ({"alpha": 1.0}, {"alpha": 1.01}, {}, {"alpha": None})
    assert [may_leave_out({"values": own}) for own in values] == [False, True, True, True]


def test_shared_values_are_repeated_per_head_and_missing_ones_are_null():
    shared = build_model(attn_mapping="entmax:init=1.5", share_alpha="layer")
    layer = MeasuredLayer("cross", 0, None, shared.decoder.layers[0].encoder_attn)
    assert HeadValues().of_heads(layer) == [{"values": {"alpha": 1.5}}] * 4
    assert HeadValues().of_layer(layer, [{}, {}]) == {"learned": ["alpha"]}
    model = build_model(attn_mapping="sqpnormmax|fusedmax*2|softmax")
    layer = MeasuredLayer("encoder-self", 0, None, model.encoder.layers[0].self_attn)
    nothing = {"alpha": None, "tv": None, "p": None, "gamma": None}
    assert [head["values"] for head in HeadValues().of_heads(layer)] == [
        {**nothing, "p": 1.5, "gamma": 1.0},
        *[{**nothing, "alpha": 2.0, "tv": 0.1}] * 2,
        {**nothing, "alpha": 1.0},
    ]


def record_of(folder, model, *lines, name="alpha"):
    """Write a record of pairs (update, offset of the values), and return what is read back."""
    text = (json.dumps({"update": update, name: alphas_of(model, by)}) for update, by in lines)
    (folder / f"{name}.jsonl").write_text("\n".join([*text, ""]))
    loaded = LoadedModel("m", str(folder / "m.pt"), "entmax_transformer", model, 7)
    return training_records(loaded)


def test_a_record_ends_with_the_values_of_the_checkpoint(tmp_path, caplog):
    model = build_model(attn_mapping="entmax")
    assert record_of(tmp_path, model, (7, 0), name="strength") == {}
    lines = record_of(tmp_path, model, (0, 0.002), (5, 0.001), (10, -0.001))["alpha"]
    assert [line["update"] for line in lines] == [0, 5, 7]
    assert lines[0]["values"] == alphas_of(model, 0.002)
    torch.testing.assert_close(lines[-1]["values"], alphas_of(model), atol=1e-6, rtol=0)
    assert record_of(tmp_path, model, (7, 0.001)) == {}
    assert "it is from another training" in caplog.text


def test_a_thinned_record_keeps_the_line_in_which_heads_leave_softmax(tmp_path):
    model = build_model(attn_mapping="entmax")
    final = alphas_of(model)
    dense = {one: dict.fromkeys(layers, [1.0] * 4) for one, layers in final.items()}
    lines = [{"update": n, "alpha": dense if n < 4 else final} for n in range(900)]
    (tmp_path / "alpha.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    loaded = LoadedModel("m", str(tmp_path / "m.pt"), "entmax_transformer", model, 899)
    updates = [line["update"] for line in training_records(loaded)["alpha"]]
    assert {0, 4, 899} < set(updates)
    assert len(updates) == 200
