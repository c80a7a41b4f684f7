"""Mappings as TorchScript modules give the same numbers, or are refused in one sentence."""

import math

import entmax as reference
import pytest
import torch

from fairseq_entmax.kernels.scripting import entmax_rows
from fairseq_entmax.mappings import Entmax, Mapping, PerHeadMapping, parse_mappings

TEXTS = ("softmax", "sparsemax", "entmax15", "entmax", "entmax:share=layer", "entmax:tv=0")


def scores(dtype=torch.float32, spread=3.0):
    """``(2, 4, 5, 11)`` with padding, and a query without keys."""
    values = torch.randn(2, 4, 5, 11, generator=torch.Generator().manual_seed(1)) * spread
    values[1, ..., 8:] = -math.inf
    values[0, 0, 0] = -math.inf
    return values.to(dtype)


@pytest.fixture(scope="module")
def scripted_rows():
    return torch.jit.script(entmax_rows)


@pytest.mark.parametrize("spread", [0.1, 3.0, 200.0])
@pytest.mark.parametrize("alpha", [1.01, 1.2, 1.9])
def test_scripted_rows_match_bisection(scripted_rows, alpha, spread):
    values = scores(torch.float64, spread)[1]
    epsilon = torch.tensor([alpha - 1], dtype=torch.float64)
    expected = reference.entmax_bisect(values, alpha, n_iter=100)
    torch.testing.assert_close(scripted_rows(values, epsilon), expected, atol=1e-9, rtol=0)
    in_python = entmax_rows(values.float(), epsilon.float())
    torch.testing.assert_close(in_python, expected.float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("text", [*TEXTS, "entmax|softmax|entmax|sparsemax"])
def test_a_scripted_mapping_gives_the_same_result(text):
    (spec,) = parse_mappings(text)
    mapping = spec.build(4, torch.Generator().manual_seed(2))
    if text == "entmax":  # include the ends of alpha's range
        mapping.alpha_logit.data.copy_(torch.tensor([-200.0, -20.0, 0.5, 200.0]))
    found = torch.jit.script(mapping.scriptable())(scores())
    torch.testing.assert_close(found, mapping(scores()), atol=1e-6, rtol=0)
    assert (found[0, 0, 0] == 0).all()


def test_a_scripted_mapping_may_be_cast_to_half_precision():
    mapping = Entmax(num_alphas=2)
    mapping.alpha_logit.data.copy_(torch.tensor([-18.0, 0.5]))  # alpha - 1 is 0 in float16
    found = mapping.scriptable().half()(scores()[:, :2])
    torch.testing.assert_close(found, mapping(scores()[:, :2]), atol=1e-3, rtol=0)


def test_alpha_is_constant_in_a_scripted_mapping():
    mapping = Entmax(alpha_init=1.5)
    scripted = torch.jit.script(mapping.scriptable())
    before = scripted(scores())
    with torch.no_grad():
        mapping.alpha_logit.fill_(3.0)
    assert torch.equal(scripted(scores()), before)
    assert not list(scripted.parameters())


@pytest.mark.parametrize(
    ("text", "name"), [("entmax:oscar=learned", "oscarmax"), ("softmax|fusedmax", "fusedmax")]
)
def test_a_mapping_with_structure_is_refused_by_name(text, name):
    (spec,) = parse_mappings(text)
    with pytest.raises(ValueError, match=f"the mapping {name}.* cannot be scripted or exported"):
        spec.build(2).scriptable()


@pytest.mark.parametrize("base", [Mapping, Entmax])
def test_a_custom_mapping_without_scripting_names_the_missing_method(base):
    class Uniform(base):
        def forward(self, scores):
            return torch.softmax(scores * 0, -1)

    message = r"the mapping Uniform .* your own mapping if it defines scriptable\(\)"
    with pytest.raises(ValueError, match=message):
        Uniform().exported()


def test_a_mapping_of_ones_own_is_exported_only_for_whole_layers():
    class Doubled(Entmax):
        def forward(self, scores):
            return super().forward(2 * scores)

        def scriptable(self):
            return super().scriptable()

    assert Doubled(1.5).exported()
    with pytest.raises(ValueError, match="of a layer that has your own beside others cannot be"):
        PerHeadMapping([Doubled(1.5), Entmax(1.5)], (0, 1)).exported()
