"""Groups of equal weights in attention maps: decided on exact weights, and only where some are made."""

import json

import numpy as np
import pytest
import torch

from fairseq_entmax.analysis import (
    document,
    load_model,
    load_samples,
    loading,
    record_attention,
)
from fairseq_entmax.analysis.groups import (
    decoded_groups,
    encode_groups,
    numbered_groups,
)
from fairseq_entmax.analysis.maps import decoded
from fairseq_entmax.mappings import Mapping, fusedmax, oscarmax
from fairseq_entmax.mappings.registry import MAPPINGS, NamedMapping
from tests.analysis import brute_force
from tests.analysis.test_analyze import _build, analyze, options
from tests.analysis.test_models import save
from tests.support import spread_scores

GROUPS = {"runs": brute_force.runs, "clusters": brute_force.clusters}
MAPPED = {"runs": lambda s: fusedmax(s, tv=0.4), "clusters": lambda s: oscarmax(s, oscar=0.05)}


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


def test_weights_that_a_half_float_makes_equal_are_no_group():
    weights = torch.tensor([[[0.3, 0.3 + 1e-6, 0.2, 0.2, 0.0, 0.0]]])
    assert weights.half()[0, 0, 0] == weights.half()[0, 0, 1]
    assert numbered_groups(weights, ["runs"]).tolist() == [[[0, 0, 1, 1, 0, 0]]]


def test_groups_come_back_as_they_were():
    groups = torch.randint(0, 5, (2, 3, 4), dtype=torch.uint8)
    entry = {"shape": [2, 3, 4], "groups": encode_groups(groups)}
    assert np.array_equal(decoded_groups(entry), groups.numpy())
    assert decoded_groups({"shape": [2, 3, 4]}) is None


@pytest.mark.parametrize("text", ["???", "AAAA", encode_groups(torch.ones(5, dtype=torch.uint8))])
def test_what_is_not_groups_of_the_shape_is_refused(text):
    with pytest.raises(ValueError, match=r"groups of the shape \[1, 2, 2\] cannot be read"):
        decoded_groups({"shape": [1, 2, 2], "groups": text})


class Strengths(Mapping):
    """The mapping of a kind, with a strength that two of the heads have."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, scores):
        mapping, name = (fusedmax, "tv") if self.kind == "runs" else (oscarmax, "oscar")
        return mapping(scores, **{name: self._strengths().view(-1, 1, 1).to(scores)})

    def _strengths(self):
        return torch.tensor([0.4, 0.0, 0.4, 0.0])

    def head_values(self):
        return {"tv" if self.kind == "runs" else "oscar": self._strengths()}


class Runs(Strengths):
    @classmethod
    def from_text(cls, parameters, num_heads, generator):
        return cls("runs")


class Clusters(Strengths):
    @classmethod
    def from_text(cls, parameters, num_heads, generator):
        return cls("clusters")


@pytest.fixture(scope="module")
def analysed(data, tmp_path_factory):
    """The analysis of a model of each kind and one of softmax, and its three checkpoints."""
    folder = tmp_path_factory.mktemp("groups")
    task = loading.setup_task(options(data, "x"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MAPPINGS, "of_runs", NamedMapping(Runs, (), {}))
        patch.setitem(MAPPINGS, "of_clusters", NamedMapping(Clusters, (), {}))
        paths = {}
        for name in ("of_runs", "of_clusters", "softmax"):
            (folder / name).mkdir()
            long = {"max_source_positions": 1024, "max_target_positions": 1024}
            extra = {"attn_mapping": name, "share_all_embeddings": True, **long}
            model = spread_scores(_build(task, "entmax_transformer", extra), 8)
            file = folder / name / "m.pt"
            paths[name] = save(file, model, "entmax_transformer", ("es", "en"), **extra)
        measures = "--measures=density,equal_weights"
        code = analyze(data, list(paths.values()), folder, measures, "--sentences=3,8")
        assert code == 0
        (sample,) = load_samples(task, "valid", [8])
        exact = {
            name: record_attention(load_model(path, task).model, sample)[0]
            for name, path in paths.items()
        }
    return json.loads((folder / "analysis.json").read_text()), exact


@pytest.mark.parametrize(("model", "kind"), [(0, "runs"), (1, "clusters")])
def test_analyze_keeps_the_groups_of_heads_whose_mapping_makes_some(analysed, model, kind):
    analysis, exact = analysed
    document.validate(analysis, "analysis.json")
    entries = analysis["maps"][1]["models"][model]
    assert len(entries) == 6
    for entry in entries:
        weights = exact[f"of_{kind}"][entry["attention"]][entry["layer"]][0]
        groups = decoded_groups(entry)
        assert not groups[[1, 3]].any()
        for head in (0, 2):
            assert groups[head].tolist() == [
                numbers_by_hand(r, kind) for r in weights[head].tolist()
            ]
            assert (decoded(entry)[head][groups[head] > 0] > 0).all()
    assert any(decoded_groups(entry).any() for entry in entries)
