"""Runs and clusters of keys with equal weight; test_statistics.py compares them with loops."""

import pytest
import torch

from fairseq_entmax.analysis.document import summary
from fairseq_entmax.analysis.measures import numbers_of
from fairseq_entmax.analysis.measures.equal_weights import groups_made
from tests.analysis.report.synthetic import every_head, synthetic_analysis
from tests.analysis.test_statistics import measured, one_sentence


def of_row(*weights, dtype=torch.float32):
    row = torch.tensor(weights, dtype=dtype)
    statistics = measured(row.expand(1, 1, len(row), len(row)), one_sentence(len(row)))
    return statistics.results()["heads"][0]["equal_weights"]


def test_a_zero_splits_runs_but_not_clusters_and_equality_is_bitwise():
    found = of_row(0.25, 0.25, 0.0, 0.25, 0.25)
    assert found == {"run_length": 2, "run_weight": 1, "cluster_size": 4, "cluster_weight": 1}
    near = float(torch.nextafter(torch.tensor(0.5), torch.tensor(1.0)))
    assert of_row(0.5, near)["run_weight"] == 0
    assert of_row(0.5, 0.5 + 1e-12, dtype=torch.float64)["cluster_weight"] == 0


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"alpha": 2.0, "tv": 0.1}, "runs"),
        ({"oscar": 0.05}, "clusters"),
        ({"tv": None, "oscar": 0.05}, "clusters"),
        ({"tv": 0.0}, None),
        ({"tv": float("nan")}, None),
        ({"alpha": 2.0}, None),
    ],
)
def test_a_heads_values_determine_which_groups_its_mapping_makes(values, kind):
    assert groups_made(values) == kind


@pytest.mark.parametrize(
    ("name", "columns"),
    [("tv", ["run-length", "run-weight"]), ("oscar", ["cluster-size", "cluster-weight"])],
)
def test_the_table_has_columns_for_the_groups_of_its_mappings(name, columns):
    analysis = synthetic_analysis(models=2, layers=1, heads=2, sentences=0)
    every = {"run-length", "run-weight", "cluster-size", "cluster-weight"}
    header = summary.as_table(analysis).splitlines()[0].split()
    assert not every & set(header)
    for head in every_head(analysis):
        head["values"][name] = 0.1
    analysis["numbers"] = [number.as_json() for number in numbers_of(analysis)]
    lines = summary.as_table(analysis).splitlines()
    assert [word for word in lines[0].split() if word in every] == columns
    head = analysis["models"][1]["attentions"][0]["heads"][0]["equal_weights"]
    assert f"{head[columns[0].replace('-', '_')]:.3f}" in lines[4].split()
