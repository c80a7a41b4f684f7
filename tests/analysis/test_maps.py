"""Attention maps, their exact zeros, and groups of equal weight that exact weights determine."""

import numpy as np
import pytest
import torch

from fairseq_entmax.analysis import document, load_model, load_samples, record_attention
from fairseq_entmax.analysis.data import loading
from fairseq_entmax.analysis.document.maps import (
    decode_weights,
    decoded,
    decoded_groups,
    encode_groups,
    encode_weights,
    numbered_groups,
)
from fairseq_entmax.mappings import fusedmax, oscarmax
from tests.analysis import brute_force
from tests.analysis.data_types.small import built
from tests.analysis.test_analyze import LONG, analyze, options
from tests.analysis.test_models import save

GROUPS = {"runs": brute_force.runs, "clusters": brute_force.clusters}
MAPPED = {"runs": lambda s: fusedmax(s, tv=0.4), "clusters": lambda s: oscarmax(s, oscar=0.05)}
# In each layer, heads 0 and 2 make groups
HEADS = {
    "runs": "fusedmax:tv=0.4|softmax|fusedmax:tv=0.4|sparsemax",
    "clusters": "oscarmax:oscar=0.4|softmax|oscarmax:oscar=0.4|sparsemax",
}


def test_zeros_stay_zero_and_small_weights_stay_nonzero():
    weights = torch.tensor([[[0.0, 1e-30, 6e-8, 1e-4], [0.25, 0.75, 0.0, 1.0]]])
    found = decode_weights({"shape": [1, 2, 4], "weights": encode_weights(weights)})
    assert torch.equal(found == 0, weights == 0)
    assert found[0, 1].tolist() == [0.25, 0.75, 0.0, 1.0]
    assert 0 < found[0, 0, 1] < 1e-7


def test_malformed_weights_or_groups_are_refused():
    for text in ("???", "AAAA", encode_weights(torch.ones(9))):
        entry = {"shape": [1, 2, 2], "weights": text, "groups": text}
        for read in (decode_weights, decoded_groups):
            with pytest.raises(ValueError, match=r"of the shape \[1, 2, 2\] cannot be read"):
                read(entry)


def numbers_by_hand(row, kind):
    numbers = [0] * len(row)
    several = [group for group in GROUPS[kind](row) if len(group) > 1]
    for number, places in enumerate(several, start=1):
        for place in places:
            numbers[place] = number
    return numbers


@pytest.mark.parametrize("kind", ["runs", "clusters"])
def test_each_key_has_the_number_of_its_group(kind):
    scores = torch.randn(3, 7, 12, generator=torch.Generator().manual_seed(0))
    scores[:, :, 4] = -torch.inf
    scores[:, :, 10:] = -torch.inf
    weights = MAPPED[kind](scores)
    groups = numbered_groups(weights, [kind, None, kind])
    assert groups[1].eq(0).all()
    assert (groups.amax(dim=-1) > 1).any()
    for head in (0, 2):
        expected = [numbers_by_hand(row, kind) for row in weights[head].tolist()]
        assert groups[head].tolist() == expected
    read = decoded_groups({"shape": [3, 7, 12], "groups": encode_groups(groups)})
    assert np.array_equal(read, groups.numpy())
    assert decoded_groups({"shape": [2, 3, 4]}) is None


def test_weights_equal_only_in_half_precision_form_no_group():
    weights = torch.tensor([[[0.3, 0.3 + 1e-6, 0.2, 0.2, 0.0, 0.0]]])
    assert weights.half()[0, 0, 0] == weights.half()[0, 0, 1]
    assert numbered_groups(weights, ["runs"]).tolist() == [[[0, 0, 1, 1, 0, 0]]]


@pytest.fixture(scope="module")
def analysed(data, tmp_path_factory):
    """The analysis of one model of each kind, and their exact weights."""
    folder, paths = tmp_path_factory.mktemp("groups"), {}
    task = loading.setup_task(options(data, "x"))
    for name, mapping in HEADS.items():
        extra = {"attn_mapping": mapping, **LONG}
        model = built("entmax_transformer", task, **extra)[0]
        file = folder / f"{name}.pt"
        paths[name] = save(file, model, "entmax_transformer", ("es", "en"), **extra)
    measures = "--measures=density,equal_weights"
    assert analyze(data, list(paths.values()), folder, measures, "--sentences=3,8") == 0
    (sample,) = load_samples(task, "valid", [8])
    exact = {
        name: record_attention(load_model(path, task).model, sample)[0]
        for name, path in paths.items()
    }
    return document.read(folder / "analysis.json"), exact


@pytest.mark.parametrize(("model", "kind"), [(0, "runs"), (1, "clusters")])
def test_analyze_stores_the_groups_of_heads_whose_mapping_makes_some(analysed, model, kind):
    analysis, exact = analysed
    entries = analysis["maps"][1]["models"][model]
    assert len(entries) == 6
    for one in entries:
        weights = exact[kind][one["attention"]][one["layer"]][0]
        groups = decoded_groups(one)
        assert not groups[[1, 3]].any()
        for head in (0, 2):
            expected = [numbers_by_hand(row, kind) for row in weights[head].tolist()]
            assert groups[head].tolist() == expected
            assert (decoded(one)[head][groups[head] > 0] > 0).all()
    assert any(decoded_groups(one).any() for one in entries)
