"""Grids and maps that can be written by name, and what they show."""

import copy
import re
import xml.etree.ElementTree

import numpy as np
import pytest
import vl_convert

from fairseq_entmax.analysis.report.figures import chosen, drawables, figures
from fairseq_entmax.analysis.report.figures_maps import map_rows
from tests.analysis.report.equal_weights import RUNS, give_groups
from tests.analysis.report.page_actions import head_of, weights_of
from tests.analysis.report.synthetic import lose_head, synthetic_analysis


@pytest.fixture(scope="module")
def analysis():
    """Models with softmax, which has lost a head, with 1.5-entmax and with fusedmax."""
    analysis = synthetic_analysis(models=3, layers=2, heads=3, sentences=2, length=9)
    give_groups(analysis, 2, RUNS)
    lose_head(analysis, 0, 0)
    analysis["models"][1]["name"] = "entmax:tv=learned+softmax"
    return analysis


@pytest.fixture(scope="module")
def there(analysis):
    return {one.name: one for one in drawables(analysis, figures(analysis))}


def rows(drawable):
    return drawable.draw().for_paper()["datasets"]["rows"]


def texts(drawable):
    svg = vl_convert.vegalite_to_svg(drawable.draw().for_paper())
    root = xml.etree.ElementTree.fromstring(svg)
    return ["".join(one.itertext()) for one in root.iter() if one.tag.endswith("}text")]


def test_by_default_page_figures_main_grids_and_one_map_per_attention_are_written(analysis, there):
    usual = [one.name for one in chosen(list(there.values()), None)]
    shown = [figure.name for figure in figures(analysis)]
    assert usual[: len(shown)] == shown
    others = usual[len(shown) :]
    assert {"grid_density", "grid_alpha", "grid_relevance"} <= set(others)
    assert "grid_diversity" in set(there) - set(others)
    maps = [name.split("_")[1:3] for name in others if name.startswith("map_")]
    assert maps == [["0", name] for name in ("encoder-self", "decoder-self", "cross")]


def test_every_name_is_a_unique_file_name_and_patterns_are_allowed(analysis, there):
    odd = copy.deepcopy(analysis)
    odd["models"].append({**odd["models"][2], "name": "α/2"})
    odd["models"][2]["name"] = "../1"
    odd["maps"] = []
    names = [one.name for one in drawables(odd, figures(odd))]
    assert len(names) == len(set(names))
    assert {"grid_weight_minus1", "grid_weight_plus1", "grid_weight_0"} <= set(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names)
    found = chosen(list(there.values()), "map_0_cross_1_?, grid_density,grid_d*y")
    maps = [f"map_0_cross_1_{head}" for head in range(3)]
    assert [one.name for one in found] == ["grid_density", "grid_diversity", *maps]


@pytest.mark.parametrize("names", ["grid_densty", "grid_density,grid_densty", "", ","])
def test_an_unknown_figure_name_is_answered_with_some_known_ones(there, names):
    message = r"--figure-names got '.*': '.*' matches no figure; there are .* more"
    with pytest.raises(ValueError, match=message):
        chosen(list(there.values()), names)


def test_a_grid_has_a_number_per_head_and_no_name_is_cut(analysis, there):
    drawn = rows(there["grid_confidence"])
    found = {(one["model"], one["attention"], one["layer"], one["head"]): one for one in drawn}
    assert len(found) == 3 * 3 * 2 * 3
    assert found["softmax", "encoder-self", 0, 0]["value"] is None
    written = texts(there["grid_confidence"])
    for number, model in enumerate(analysis["models"]):
        value = head_of(analysis, number, "cross", 1, 2)["confidence"]
        assert found[model["name"], "cross", 1, 2]["value"] == pytest.approx(value, rel=1e-5)
        assert f"{value:.2f}" in written
    assert "entmax:tv=learned+softmax" in "".join(written)
    assert not [text for text in written if "…" in text]


def test_grids_of_one_model_have_the_colours_of_all(there):
    alone, together = (
        there[name].draw().for_paper()["spec"]["layer"][0]["encoding"]["color"]["scale"]
        for name in ("grid_entropy-1-entmax-tv-learned-softmax", "grid_entropy")
    )
    assert alone == together
    assert {row["model"] for row in rows(there["grid_entropy-2-entmax"])} == {"entmax"}


def test_a_map_has_every_weight_of_the_head_and_exact_zeros_are_hatched(analysis, there):
    name = "map_17_encoder-self_0_1-1-entmax-tv-learned-softmax"
    zeros = int((weights_of(analysis, 1, 1, "encoder-self", 0, 1) == 0).sum())
    svg = vl_convert.vegalite_to_svg(there[name].draw().for_paper())
    assert svg.count('stroke="#8f8f8a"') == zeros > 0
    drawn = rows(there["map_17_cross_1_0"])
    for model in range(3):
        weights = weights_of(analysis, 1, model, "cross", 1, 0)
        name = analysis["models"][model]["name"]
        made = np.full(weights.shape, np.nan)
        for row in drawn:
            if row["panel"] == name:
                made[row["query"], row["from"] : row["to"]] = row["weight"]
        np.testing.assert_allclose(made, weights, rtol=1e-5)


def test_the_future_is_blank_and_a_run_of_equal_weight_is_one_box(there):
    drawn = rows(there["map_0_decoder-self_0_0"])
    assert drawn
    assert all(row["to"] <= row["query"] + 1 for row in drawn)
    runs = [row for row in rows(there["map_0_encoder-self_0_1"]) if row["to"] - row["from"] > 1]
    assert {row["panel"] for row in runs} == {"entmax"}
    assert "A box is a run" in there["map_0_encoder-self_0_1"].draw().caption
    # A missing head has no panel
    panels = {row["panel"] for row in rows(there["map_0_encoder-self_0_0"])}
    assert panels == {"entmax:tv=learned+softmax", "entmax"}
    assert "map_0_encoder-self_0_0-0-softmax" not in there


def test_unusual_tokens_are_drawn_without_a_warning(analysis, capfd):
    odd = ['"]+alert(1)+["<img>', "a\\b", "if", "constructor"]
    analysis = {**analysis, "maps": [dict(analysis["maps"][0])]}
    entry = analysis["maps"][0]
    entry["source"] = [*odd, *entry["source"][len(odd) :]]
    (drawable,) = chosen(drawables(analysis, []), "map_0_encoder-self_0_1")
    written = texts(drawable)
    for token in entry["source"]:
        assert written.count(token.replace("▁", "_")) >= 3 * entry["source"].count(token)
    assert "WARN" not in "".join(capfd.readouterr())


def test_separate_groups_have_different_marks():
    weights = np.array([[0.3, 0.2, 0.3, 0, 0.2, 0]])
    groups = np.array([[1, 2, 1, 0, 2, 0]])
    drawn = list(map_rows(weights, groups, is_causal=False))
    assert [(row["from"], row["to"], row["weight"], row["mark"]) for row in drawn] == [
        (0, 1, 0.3, 0), (1, 2, 0.2, 1), (2, 3, 0.3, 0), (3, 4, 0, None), (4, 5, 0.2, 1),
        (5, 6, 0, None),
    ]  # fmt: skip
    (joined,) = map_rows(np.array([[0.5, 0.5]]), np.array([[1, 1]]), is_causal=False)
    assert (joined["from"], joined["to"], joined["mark"]) == (0, 2, None)
