"""The single rules of relevance propagation, compared with hand calculations."""

import torch

from fairseq_entmax.analysis.importance import rules
from fairseq_entmax.mappings import parse_mapping


def test_a_key_of_weight_zero_receives_exactly_nothing():
    torch.manual_seed(0)
    weights = parse_mapping("entmax15").build(num_heads=2)(3.0 * torch.randn(1, 2, 5, 7))[0]
    assert (weights == 0).any()
    weights[:, :, 2] = 0.0
    values = torch.randn(7, 2, 3)
    received = rules.weighted_sum(torch.rand(4, 5, 2, 3), weights, values)
    assert not received[:, 2].any()
    assert received[:, [0, 1, 3, 4, 5, 6]].any()
    # Relevance of a single query goes only to its support
    for query in range(5):
        relevance = torch.zeros(1, 5, 2, 3)
        relevance[:, query] = 1.0
        received = rules.weighted_sum(relevance, weights, values)[0].sum(dim=-1)
        assert torch.equal(received > 0, weights[:, query].t() > 0)


def test_a_unit_made_by_its_bias_passes_relevance_on_like_the_layers_other_units():
    weight = torch.tensor([[0.0, 0.0, 0.0], [2.0, -1.0, 0.0]])
    inputs = torch.tensor([[1.0, 2.0, 5.0]])
    received = rules.linear(torch.tensor([[[0.6, 0.4]]]), inputs, weight)
    torch.testing.assert_close(received, torch.tensor([[[0.5, 0.5, 0.0]]]))


def test_relevance_of_zero_units_passes_through_norms_and_residuals():
    relevance = torch.tensor([[[0.1, 0.2, 0.3]]])
    assert torch.equal(rules.layer_norm(relevance, torch.zeros(1, 3)), relevance)
    relevance = torch.tensor([[[0.1, 0.2]]])
    of_stream, added = rules.residual(relevance, torch.zeros(1, 2), torch.tensor([[0.0, 3.0]]))
    assert torch.equal(of_stream, torch.tensor([[[0.1, 0.0]]]))
    assert torch.equal(added, torch.tensor([[[0.0, 0.2]]]))
