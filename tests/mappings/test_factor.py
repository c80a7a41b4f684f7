"""lr_factor: it scales how fast a mapping learns, and does not change stored values."""

from functools import partial

import pytest
import torch

from fairseq_entmax.mappings import Mapping, parse_mapping
from tests.mappings.reference import random_rows

LEARNED = [
    "entmax:share=layer",
    "entmax:tv=learned",
    "oscarmax:oscar=learned",
    "sqpnormmax:p=learned",
    "softmax:temperature=learned:temperature_init=0.5",
]
FACTORS = [0.001, 1 / 3, 10000]


def build(text, factor=1, heads=4, seed=0):
    text += f":lr_factor={factor}" if factor != 1 else ""
    mapping = parse_mapping(text).build(heads, torch.Generator().manual_seed(seed))
    if seed:
        with torch.no_grad():
            for parameter in mapping.parameters():
                own = torch.Generator().manual_seed(seed)
                parameter.add_(torch.rand(parameter.shape, generator=own) / factor)
    return mapping


def values(mapping):
    return {name: value.detach() for name, value in mapping.head_values().items()}


def assert_same_values(first, second, rtol=2e-6):
    torch.testing.assert_close(values(first), values(second), rtol=rtol, atol=0)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("text", LEARNED)
def test_initial_values_do_not_depend_on_the_factor(text, factor):
    fast, plain = build(text, factor), build(text)
    assert_same_values(fast, plain)
    for name, parameter in plain.named_parameters():
        stored = dict(fast.named_parameters())[name]
        torch.testing.assert_close(stored * factor, parameter, rtol=1e-6, atol=0)
    scores = random_rows(24, 9, 1.0).view(2, 4, 3, 9)
    torch.testing.assert_close(fast(scores), plain(scores), rtol=0, atol=2e-6)


@pytest.mark.parametrize("descent", [partial(torch.optim.Adam, eps=1e-30), torch.optim.SGD])
@pytest.mark.parametrize("text", LEARNED)
def test_a_step_of_an_optimizer_is_multiplied_by_the_factor(text, descent):
    moves = []
    for factor in (1, 10):
        mapping = build(text, factor).double()
        start = {name: p.detach() * factor for name, p in mapping.named_parameters()}
        optimizer = descent(mapping.parameters(), lr=1e-4)
        scores = random_rows(24, 9, 1.0, dtype=torch.float64).view(2, 4, 3, 9)
        (mapping(scores) * torch.arange(9.0)).sum().backward()
        gradients = [parameter.grad for parameter in mapping.parameters()]
        optimizer.step()
        moves.append({n: p.detach() * factor - start[n] for n, p in mapping.named_parameters()})
        assert all(gradient.any() for gradient in gradients)
    for name, move in moves[0].items():
        torch.testing.assert_close(moves[1][name], 10 * move, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("theirs", [1, *FACTORS])
@pytest.mark.parametrize("own", [1, *FACTORS])
@pytest.mark.parametrize("text", ["entmax:tv=learned", "sqpnormmax:p=learned"])
def test_values_survive_loading_from_a_checkpoint_with_another_factor(text, own, theirs):
    saved, loaded = build(text, theirs, seed=3), build(text, own)
    state = saved.state_dict()
    before = {name: value.clone() for name, value in state.items()}
    loaded.load_state_dict(state)
    assert_same_values(loaded, saved)
    assert state.keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in state.items())
    again = build(text, own)
    # Parameters and buffers alone are a complete state, as in fairseq's moving averages
    names = dict(loaded.named_parameters()) | dict(loaded.named_buffers())
    again.load_state_dict(names, strict=False)
    assert all(map(torch.equal, again.parameters(), loaded.parameters()))


@pytest.mark.parametrize("text", LEARNED)
def test_a_checkpoint_stores_a_factor_other_than_1_of_learned_values(text):
    assert not any("factor" in name for name in build(text).state_dict())
    assert list(build(text, 10).state_dict())[-1] == "lr_factor_ratio"
    for fixed in ("softmax", "entmax:alpha=1.3", "sqpnormmax"):
        assert not parse_mapping(fixed).build(4, defaults={"lr_factor": 10.0}).state_dict()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("factor", FACTORS)
def test_half_precision_keeps_the_values_and_the_factor(dtype, factor):
    saved = build("entmax:tv=learned", factor, seed=3)
    half, loaded = build("entmax:tv=learned", factor).to(dtype), build("entmax:tv=learned")
    half.load_state_dict(saved.state_dict())
    loaded.load_state_dict(half.state_dict())
    assert_same_values(loaded, half)
    assert_same_values(half, saved, rtol=2e-2)


def test_a_mapping_that_stores_no_factor_loads_its_own_state():
    class Scaled(Mapping):
        def __init__(self, start):
            super().__init__()
            self.lr_factor, self.weight = 10.0, torch.nn.Parameter(torch.tensor([start]))

    loaded = Scaled(2.0)
    loaded.load_state_dict(Scaled(1.0).state_dict())
    assert loaded.weight.tolist() == [1.0]


@pytest.mark.parametrize("ratio", [[0, 1], [1, 0], [10]])
def test_an_invalid_ratio_is_refused(ratio):
    state = {**build("entmax").state_dict(), "lr_factor_ratio": torch.tensor(ratio)}
    with pytest.raises(ValueError, match=r"lr_factor_ratio must be a number above 0, from 0\.001"):
        build("entmax").load_state_dict(state)
