"""Runs and clusters of keys with equal weight, against loops over every weight."""

import pytest
import torch

from fairseq_entmax.analysis import summary
from fairseq_entmax.analysis.measures import numbers_of
from fairseq_entmax.analysis.measures.equal_weights import groups_made
from fairseq_entmax.analysis.statistics import LayerStatistics
from fairseq_entmax.mappings import sparsemax
from tests.analysis import brute_force
from tests.analysis.report.synthetic import synthetic_analysis
from tests.analysis.test_statistics import SOURCE, TARGET, batch_of, cut, one_sentence, table, texts

HEADS = 3


def sentences_of(size):
    """Batches of so many sentences, the same ones in all, with padding on either side."""
    sources, targets = texts(SOURCE, 0, at_end=True), texts(TARGET, 1, at_end=False)
    for begin in range(0, len(sources), size):
        parts = sources[begin : begin + size], targets[begin : begin + size]
        yield begin, batch_of(*parts, table(), left_pad_target=bool(size % 2))


def stepped_weights(batch, attention, first):
    """Sparsemax of scores of few different values, so that equal ones stand side by side and apart.

    They are each sentence's own, whatever batch it is in; some visible keys are masked.
    """
    queries, keys = batch.sides(attention)
    shape = (len(queries.tokens), HEADS, queries.tokens.size(1), keys.tokens.size(1))
    # Rows of padding have equal weights too, which must not count
    padding = ~queries.real[:, None, :, None] & keys.real[:, None, None, :]
    scores = torch.where(padding, 0.0, -torch.inf).expand(shape).clone()
    for row in range(len(scores)):
        generator = torch.Generator().manual_seed(first + row)
        q0, q, k0, k = (int(side[row]) for s in (queries, keys) for side in (s.start, s.lengths))
        own = 0.25 * torch.randint(0, 4, (HEADS, q, k), generator=generator)
        own[torch.rand(own.shape, generator=generator) < 0.2] = -torch.inf
        own[..., 0] = own[..., 0].clamp(min=0)  # no query without a key
        if attention == "decoder-self":
            own = own.masked_fill(torch.ones(q, k, dtype=torch.bool).triu(1), -torch.inf)
        scores[row, :, q0 : q0 + q, k0 : k0 + k] = own
    return sparsemax(scores)


@pytest.mark.parametrize("attention", ["encoder-self", "decoder-self", "cross"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_runs_and_clusters_are_those_of_loops_in_batches_of_any_size(attention, size):
    statistics, found = LayerStatistics(attention, HEADS, {"equal_weights"}), []
    for first, batch in sentences_of(size):
        weights = stepped_weights(batch, attention, first)
        statistics.update(weights, batch)
        found += cut(weights, batch, attention)
    for head, given in enumerate(statistics.results()["heads"]):
        expected = brute_force.equal_weights(found, head)
        assert given["equal_weights"] == pytest.approx(expected, abs=1e-6)
        assert 1.1 < expected["run_length"] < expected["cluster_size"]
        assert 0.05 < expected["run_weight"] < expected["cluster_weight"] <= 1


def of_row(*weights, dtype=torch.float32):
    row = torch.tensor(weights, dtype=dtype)
    n = len(weights)
    statistics = LayerStatistics("encoder-self", 1, {"equal_weights"})
    statistics.update(row.expand(1, 1, n, n), one_sentence(n))
    return statistics.results()["heads"][0]["equal_weights"]


def test_a_key_of_weight_zero_parts_a_run_and_no_cluster_and_only_equal_bits_are_equal():
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
def test_a_heads_values_say_what_groups_its_mapping_makes(values, kind):
    assert groups_made(values) == kind


@pytest.mark.parametrize(
    ("name", "columns"),
    [("tv", ["run-length", "run-weight"]), ("oscar", ["cluster-size", "cluster-weight"])],
)
def test_the_table_has_the_groups_that_some_mapping_makes(name, columns):
    analysis = synthetic_analysis(models=2, layers=1, heads=2, sentences=0)
    every = {"run-length", "run-weight", "cluster-size", "cluster-weight"}
    header = summary.as_table(analysis).splitlines()[0].split()
    assert not every & set(header)
    for layer in analysis["models"][1]["attentions"]:
        for head in layer["heads"]:
            head["values"][name] = 0.1
    analysis["numbers"] = [number.as_json() for number in numbers_of(analysis)]
    lines = summary.as_table(analysis).splitlines()
    assert [word for word in lines[0].split() if word in every] == columns
    head = analysis["models"][1]["attentions"][0]["heads"][0]["equal_weights"]
    assert f"{head[columns[0].replace('-', '_')]:.3f}" in lines[4].split()
