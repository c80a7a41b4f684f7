"""The numbers in the charts, compared with hand calculations."""

import copy
from collections import Counter

import pytest

from fairseq_entmax.analysis.report.figures_density import (
    density_by_layer,
    density_distribution,
    diversity_by_layer,
)
from fairseq_entmax.analysis.report.figures_heads import (
    confidence_and_importance,
    dependency_accuracy,
    dependency_offsets,
    functions_by_model,
)
from fairseq_entmax.analysis.report.figures_pruning import bleu_by_heads, remaining_heads
from fairseq_entmax.analysis.report.figures_values import histograms, trajectories
from tests.analysis.report.page_actions import layer_of
from tests.analysis.report.synthetic import every_head
from tests.analysis.report.test_figures import PRUNING


def only(draw, source):
    """The single figure that is drawn."""
    (figure,) = draw(source)
    return figure


def data(figure):
    """The rows of a chart; the reference line of a chart is a second, smaller data set."""
    return max(figure.for_page()["datasets"].values(), key=len)


def test_a_trajectory_is_the_record_of_its_head(small):
    record = small["models"][2]["records"]["alpha"]
    rows = {(row["attention"], row["name"]): row for row in data(only(trajectories, small))}
    row = rows["cross", "layer 1, head 2"]
    assert row["update"] == [line["update"] for line in record]
    expected = [line["values"]["cross"]["1"][2] for line in record]
    assert row["value"] == pytest.approx(expected, rel=1e-3)
    assert row["final"] == pytest.approx(expected[-1], rel=1e-3)


@pytest.mark.parametrize("lines", [1, 81, 200])
def test_a_long_record_is_thinned_between_its_ends(small, lines):
    small["models"][2]["records"]["alpha"] = [
        {"update": number, "values": {"cross": {"0": [1 + number / 1000]}}}
        for number in range(lines)
    ]
    (row,) = data(only(trajectories, small))
    assert row["name"] == "layer 0"
    assert (row["update"][0], row["update"][-1]) == (0, lines - 1)
    assert len(row["update"]) == len(set(row["update"])) <= 81
    assert row["value"] == pytest.approx([1 + update / 1000 for update in row["update"]], 1e-3)


def test_the_histogram_counts_learned_alphas_in_bins_of_0_05(small):
    model = small["models"][2]
    model["attentions"] = [layer_of(small), layer_of(small, 2, "encoder-self", 1)]
    learned, fixed = model["attentions"]
    fixed["mapping"], fixed["learned"] = "entmax:alpha=1.33", []
    template = learned["heads"][0]
    learned["heads"] = [
        {**template, "head": number, "values": {"alpha": alpha}}
        for number, alpha in enumerate([1.0, 1.049, 1.05, 1.3, 1.34, 1.999, 2.0])
    ]
    learned["heads"].append({**template, "head": 7, "values": {"alpha": 1.7}, "gate": 0})
    counts = {(row["from"], row["to"]): row["heads"] for row in data(only(histograms, small))}
    assert counts == {(1.0, 1.05): 2, (1.05, 1.1): 1, (1.3, 1.35): 2, (1.95, 2.0): 2}


def test_a_panel_without_numbers_has_an_empty_row_that_keeps_its_place(small):
    learned = small["models"][2]
    small["models"] = [learned, {**copy.deepcopy(learned), "name": "sparse"}]
    for entry in learned["attentions"][:4]:
        entry["learned"] = []
    panels = Counter()
    for row in data(only(histograms, small)):
        panels[row["model"], row["attention"]] += row["heads"]
    assert panels == {
        **{("entmax", "encoder-self"): 0, ("entmax", "decoder-self"): 0, ("entmax", "cross"): 6},
        **{("sparse", attention): 6 for attention in ("encoder-self", "decoder-self", "cross")},
    }


def test_fixed_heads_among_per_head_mappings_are_not_counted_as_learned(small):
    layer = layer_of(small)
    small["models"][2]["attentions"] = [layer]
    layer["mapping"], layer["learned"] = "entmax:tv=learned|softmax|fusedmax", ["alpha", "tv"]
    for head, alpha in zip(layer["heads"], (1.3, 1.0, 2.0), strict=True):
        head["values"] = {"alpha": alpha}
    (row,) = data(only(histograms, small))
    assert (row["from"], row["heads"]) == (1.3, 1)
    small["models"][2]["records"] = {
        "alpha": [
            {"update": 10 * place, "values": {"encoder-self": {"0": values}}}
            for place, values in enumerate(([1.2, 1.0, 1.5], [1.3, 1.0, 2.0]))
        ]
    }
    # The last one is fixed but rises, so it has a line
    names = [row["name"] for row in data(only(trajectories, small))]
    assert names == ["layer 0, head 0", "layer 0, head 2"]


def test_the_density_distribution_sums_over_heads(small):
    for head in every_head(small):
        head["density_histogram"] = None
    first, second = layer_of(small), layer_of(small, 2, "encoder-self", 1)
    first["heads"][0]["density_histogram"] = [1, 2, 0, 0]
    second["heads"][1]["density_histogram"] = [0, 4, 0, 1]
    found = data(only(density_distribution, small))
    assert [(row["from"], row["to"], row["count"], row["share"]) for row in found] == [
        (0.0, 0.25, 1, 0.125),
        (0.25, 0.5, 6, 0.75),
        (0.75, 1.0, 1, 0.125),
    ]


def test_heads_are_ranked_by_density_in_their_layer(small):
    for head, density in zip(layer_of(small)["heads"], [0.5, 0.9, 0.1], strict=True):
        head["density"] = density
    found = [
        (row["rank"], row["head"], row["density"])
        for row in data(only(density_by_layer, small))
        if (row["model"], row["attention"], row["layer"]) == ("entmax", "encoder-self", 0)
    ]
    assert found == [(0, 2, 0.1), (1, 0, 0.5), (2, 1, 0.9)]


@pytest.mark.parametrize("draw", [density_distribution, density_by_layer])
def test_softmax_of_density_one_is_left_out_and_the_caption_says_so(small, draw):
    figure = only(draw, small)
    assert {row["model"] for row in data(figure)} == {"entmax15", "entmax"}
    assert "left out" in figure.caption
    layer_of(small, model=0)["heads"][0]["density"] = 0.04
    figure = only(draw, small)
    assert "softmax" in {row["model"] for row in data(figure)}
    assert "left out" not in figure.caption


def test_diversity_is_shown_for_each_layer_that_has_one(small):
    layer_of(small, 0)["diversity"] = None
    rows = data(only(diversity_by_layer, small))
    found = {(row["model"], row["attention"], row["layer"]): row["diversity"] for row in rows}
    assert len(found) == 3 * 3 * 2 - 1
    expected = layer_of(small, 1, "cross", 1)["diversity"]
    assert found["entmax15", "cross", 1] == pytest.approx(expected, 1e-3)


def test_confidence_is_sorted_by_relevance(small):
    values = [(0.2, 0.9), (0.7, 0.4), (0.1, None)]
    for head, (relevance, confidence) in zip(layer_of(small)["heads"], values, strict=True):
        head.update({"relevance": relevance, "confidence": confidence})
    found = [
        (row["measure"], row["rank"], row["head"], row["value"])
        for row in data(confidence_and_importance(small)[0])
        if (row["model"], row["layer"]) == ("entmax", 0)
    ]
    assert sorted(found) == [
        ("confidence", 1, 1, 0.4),
        ("confidence", 2, 0, 0.9),
        ("relevance (LRP)", 1, 1, 0.7),
        ("relevance (LRP)", 2, 0, 0.2),
        ("relevance (LRP)", 3, 2, 0.1),
    ]


def test_a_relation_shows_the_best_head_of_each_model(small):
    for head in every_head(small):
        head["dependencies"] = None
    for layer, head, gate, accuracy in ((0, 1, None, 0.4), (1, 1, None, 0.6), (0, 2, 0.0, 0.9)):
        own = {"nsubj": {"to_head": accuracy, "to_dependent": None}}
        layer_of(small, 0, layer=layer)["heads"][head].update(gate=gate, dependencies=own)
    found = data(only(dependency_accuracy, small))
    names = ("model", "name", "direction", "accuracy", "baseline")
    expected = ["softmax", "layer 1, head 1", "nsubj → head", 0.6, 0.35]
    assert [[row[name] for name in names] for row in found] == [expected]


def test_of_many_relations_only_the_most_frequent_are_shown(small):
    side = {"baseline": 0.3, "offset": 1}
    relations = {f"r{n}": {"count": n, "to_head": side, "to_dependent": side} for n in range(20)}
    small["annotations"]["relations"] = relations
    layer_of(small)["heads"][0]["dependencies"] = {
        name: {"to_head": 0.5, "to_dependent": 0.5} for name in relations
    }
    figure = only(dependency_accuracy, small)
    names = list(dict.fromkeys(row["direction"] for row in data(figure)))
    assert names[:3] == ["r19 → head", "head → r19", "r18 → head"]
    assert len(names) == 24
    assert "12 most frequent" in figure.caption


def test_each_relation_shows_the_offsets_of_its_dependents(small):
    rows = data(only(dependency_offsets, small))
    found = {(row["relation"], row["offset"]): row["share"] for row in rows}
    assert len(found) == 8
    assert (found["nsubj", -1], found["obj", 2], found["obj", -2]) == (0.35, 0.41, 0.1)
    for relation in small["annotations"]["relations"].values():
        del relation["offsets"]  # as in the record of the recipes
    assert dependency_offsets(small) == []


def test_bleu_is_shown_over_the_number_of_remaining_heads():
    found = {
        (row["panel"][:3], row["mapping"], row["model"]): (row["heads"], row["BLEU"], row["kind"])
        for row in data(only(bleu_by_heads, PRUNING))
    }
    assert found == {
        ("enc", "softmax", "baseline"): (4, 20.0, "baseline"),
        ("enc", "softmax", "continued"): (4, 21.0, "continued"),
        ("enc", "softmax", "encoder1-pruned"): (1, 19.0, "pruned"),
        ("enc", "softmax", "encoder1-scratch"): (1, 18.0, "scratch"),
        ("enc", "entmax", "baseline"): (4, 20.5, "baseline"),
        ("all", "softmax", "baseline"): (12, 20.0, "baseline"),
        ("all", "softmax", "continued"): (12, 21.0, "continued"),
        ("all", "softmax", "all7-pruned"): (7, 17.0, "pruned"),
        ("all", "entmax", "baseline"): (12, 20.5, "baseline"),
        ("all", "entmax", "1-4-2-pruned"): (7, 17.5, "pruned"),
    }


def test_remaining_heads_are_counted_by_attention_and_layer():
    by_attention, by_layer = map(data, remaining_heads(PRUNING))
    assert by_attention == by_layer  # summed when they are drawn
    found = {(r["mapping"], r["model"], r["attention"], r["layer"]): r["left"] for r in by_layer}
    assert {row["all"] for row in by_layer if row["model"].endswith("pruned")} == {7}
    pruned = "entmax", "1-4-2-pruned"
    assert found[*pruned, "encoder-self", 0] == found[*pruned, "encoder-self", 1] + 1 == 1
    # Only the baseline and models pruned in every attention, none from scratch
    models = {(mapping, "baseline") for mapping in ("softmax", "entmax")}
    assert {key[:2] for key in found} == models | {("softmax", "all7-pruned"), pruned}
    assert remaining_heads(PRUNING[:2]) == []


def test_closed_heads_have_no_density_in_a_figure(small):
    before, after = [], []
    for rows in (before, after):
        found = data(only(density_by_layer, small))
        rows += [(row["model"], row["attention"], row["layer"]) for row in found]
        for head in layer_of(small, 1)["heads"]:
            head["gate"] = 0
    gone = ("entmax15", layer_of(small, 1)["attention"], 0)
    assert set(before) - set(after) == {gone}


def test_functions_are_counted_over_the_open_encoder_heads(small):
    for head in every_head(small):
        head.update({"positional": None, "rare_word": None, "dependencies": None})
    first, second, third = layer_of(small, 1)["heads"]
    first["positional"] = {"share": 0.95, "offset": -1, "confidence": 0.9}
    first["rare_word"] = {"rarest": 0.3, "two_rarest": 0.5}
    second["dependencies"] = {"nsubj": {"to_head": 0.5, "to_dependent": 0.1}}
    third["gate"] = 0
    layer_of(small, 1, layer=1)["heads"].clear()
    layer_of(small, 0)["heads"][0]["positional"] = {"share": 0.95, "offset": 2, "confidence": 0.9}
    rows = data(only(functions_by_model, small))
    assert [(row["model"], row["function"], row["heads"]) for row in rows] == [
        *(("softmax", "other", 6), ("entmax15", "several", 1), ("entmax15", "syntactic", 1)),
        ("entmax", "other", 6),
    ]
