"""Mappings with structure in C, against other algorithms in float64."""

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear

from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native import rows as plain
from fairseq_entmax.kernels.native import structured as native
from fairseq_entmax.kernels.structure import KINDS, OSCAR, PNORM, TV
from tests.kernels import structured_reference as reference
from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler

EPSILONS = [1e-3, 0.2, 0.5, 0.8, 1.0]
STRENGTHS = {
    TV: [0.0, 1e-3, 0.1, 1.0, 30.0, 1e6],
    OSCAR: [0.0, 1e-3, 0.01, 0.3, 10.0, 1e6],
    PNORM: [0.01, 0.3, 1.0, 4.0, 1e3],
}
# Around the vector width; of fewer keys in the support than out of it, and of more
KEYS = [1, 2, 5, 16, 33, 130]
CASES = [(kind, strength) for kind in KINDS for strength in STRENGTHS[kind]]


def some_scores(rows, keys, spread=2.0, masked=0.1, seed=0):
    generator = torch.Generator().manual_seed(1000 * keys + seed)
    scores = torch.randn(rows, keys, generator=generator) * spread
    return scores.masked_fill(torch.rand(rows, keys, generator=generator) < masked, -torch.inf)


def truth(scores, kind, epsilon, strength):
    """By the reference, with the parameters as they are in float32."""
    parameters = [
        torch.as_tensor(value, dtype=torch.float32).double().numpy()
        for value in (epsilon, strength)
    ]
    return torch.from_numpy(reference.probabilities(kind, scores.double().numpy(), *parameters))


def test_the_reference_is_the_bounded_least_squares_of_scipy():
    generator = np.random.default_rng(0)
    for length, strength in ((2, 0.3), (9, 0.1), (30, 1.0), (30, 0.2)):
        scores = generator.normal(size=length)
        jumps = np.diff(np.eye(length), axis=0).T
        flux = lsq_linear(jumps, scores, (-strength, strength), "bvls", tol=1e-14).x
        found = reference.prox_tv(scores, strength)
        np.testing.assert_allclose(found, scores - jumps @ flux, atol=1e-10)


@pytest.mark.parametrize(("kind", "strength"), CASES)
@pytest.mark.parametrize("keys", KEYS)
def test_probabilities_are_those_of_float64(keys, kind, strength):
    epsilons = torch.tensor(EPSILONS * 4)[:, None]  # no multiple of the vector width
    scores = some_scores(len(epsilons), keys)
    probs = native.probabilities(scores, kind, epsilons, strength)
    expected = truth(scores, kind, epsilons, strength)
    torch.testing.assert_close(probs.double(), expected, atol=2e-6, rtol=0)


def hard_rows(keys):
    """Name to rows on which total variation takes many steps, or has ties."""
    generator = np.random.default_rng(keys)
    noise, line = generator.normal(size=(3, keys)), np.linspace(-1, 1, keys)
    return {
        "walk": noise.cumsum(1),
        "ramp": line * np.array([[1.0], [-0.1], [40.0]]),
        "hump": 1e-4 * noise - line**2,
        "constant": 0 * noise + 3.7,
        "few values": np.round(noise),
        "bfloat16": torch.from_numpy(noise).bfloat16().double().numpy(),
    }


@pytest.mark.parametrize("name", ["walk", "ramp", "hump", "constant", "few values", "bfloat16"])
@pytest.mark.parametrize("keys", [30, 300, 1024])
def test_long_rows_keep_their_digits_at_any_strength_of_total_variation(keys, name):
    scores = torch.from_numpy(hard_rows(keys)[name]).float()
    size = scores.abs().max().item()
    for strength in (0.0, 1e-4, 0.1, 3.0, 100.0, 1e4, 1e6):
        probs = native.probabilities(scores, TV, 1.0, strength)
        expected = truth(scores, TV, 1.0, strength)
        assert (probs.double() - expected).abs().max() <= 2e-6 * max(1.0, size)


@pytest.mark.slow
@pytest.mark.parametrize("strength", [0.1, 100.0])
def test_very_long_rows_keep_their_digits(strength):
    scores = torch.from_numpy(hard_rows(5000)["walk"]).float()
    expected = truth(scores, TV, 1.0, strength)
    probs = native.probabilities(scores, TV, 1.0, strength)
    assert (probs.double() - expected).abs().max() <= 2e-6 * scores.abs().max()


@pytest.mark.parametrize("kind", [TV, OSCAR])
@pytest.mark.parametrize("masked", [0.0, 0.2])
@pytest.mark.parametrize("keys", [7, 40, 300])
def test_rows_with_a_strength_of_0_are_those_of_entmax(keys, masked, kind):
    scores = some_scores(20, keys, masked=masked).mul(2).round().div(2)  # with ties
    grad = some_scores(20, keys, masked=0.0, seed=1)
    strength = torch.tensor([0.0, 0.5] * 10)[:, None]
    for epsilon in (0.3, 0.5, 1.0):
        probs = native.probabilities(scores, kind, epsilon, strength)
        expected = plain.probabilities(scores, epsilon)
        # To the bit, but that long rows are summed in other parts
        torch.testing.assert_close(probs[::2], expected[::2], atol=2e-7 * (keys > 128), rtol=0)
        ours, ours_alpha, _ = native.gradients(
            probs, kind, epsilon, strength, None, grad, (True, True, True)
        )
        theirs, theirs_alpha = plain.gradients(probs, epsilon, grad, True, True)
        torch.testing.assert_close(ours[::2], theirs[::2], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(ours_alpha, theirs_alpha, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [TV, OSCAR])
def test_keys_of_a_group_have_the_same_bits(kind):
    scores = some_scores(64, 50, spread=1.0)
    strength = 0.3 if kind == TV else 0.05
    for epsilon in (0.4, 0.5, 1.0):
        probs = native.probabilities(scores, kind, epsilon, strength)
        expected = truth(scores, kind, epsilon, strength)
        if kind == OSCAR:
            probs, order = probs.sort(-1)
            expected = expected.gather(-1, order)
        is_kept = (expected[:, 1:] > 1e-6) & (expected[:, :-1] > 1e-6)
        is_same = expected.diff().abs() < 1e-12
        assert (is_same & is_kept).sum() > 30
        assert (probs[:, 1:] == probs[:, :-1])[is_kept & is_same].all()
        assert (probs[:, 1:] != probs[:, :-1])[is_kept & (expected.diff().abs() > 1e-5)].all()


GRADIENT_CASES = [(TV, 0.05), (TV, 0.4), (TV, 1e3), (OSCAR, 0.02), (OSCAR, 0.3), (OSCAR, 1e3)]
GRADIENT_CASES += [(PNORM, 0.2), (PNORM, 1.0), (PNORM, 6.0)]


@pytest.mark.parametrize(("kind", "strength"), GRADIENT_CASES)
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("keys", [3, 14, 40])
def test_gradients_are_differences_of_float64(keys, epsilon, kind, strength):
    rows = 3
    scores = some_scores(rows, keys, spread=1.0, masked=0.15)
    grad = some_scores(rows, keys, spread=1.0, masked=0.0, seed=5)
    epsilon = min(epsilon, 1.0 - 1e-4)  # so that there are numbers on both sides
    probs = native.probabilities(scores, kind, epsilon, strength)
    masked = scores == -torch.inf
    ours = native.gradients(probs, kind, epsilon, strength, masked, grad, (True, True, True))
    for row in range(rows):
        theirs = reference.gradients(
            kind, scores[row].double().numpy(), epsilon, strength, grad[row].double().numpy()
        )
        size = max(1.0, np.abs(theirs[0]).max())
        np.testing.assert_allclose(ours[0][row], theirs[0], atol=2e-5 * size)
        for one, other in zip(ours[1:], theirs[1:], strict=True):
            np.testing.assert_allclose(one[row], other, atol=5e-5 * max(1.0, abs(other)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_wanted_is_none_and_changes_nothing(kind):
    scores = some_scores(20, 30)
    grad = torch.randn_like(scores)
    masked = scores == -torch.inf
    probs = native.probabilities(scores, kind, 0.6, 0.7)
    everything = native.gradients(probs, kind, 0.6, 0.7, masked, grad, (True, True, True))
    for place in range(3):
        wanted = tuple(other == place for other in range(3))
        results = native.gradients(probs, kind, 0.6, 0.7, masked, grad, wanted)
        assert [result is not None for result in results] == list(wanted)
        torch.testing.assert_close(results[place], everything[place], atol=2e-6, rtol=1e-5)


def test_a_masked_neighbour_counts_nothing_in_the_gradient_of_the_strength():
    scores = torch.tensor([[1.0, -torch.inf, 0.7, 0.65, 0.3]])
    grad = torch.tensor([[1.0, 0.0, -0.5, 2.0, 0.25]])
    probs = native.probabilities(scores, TV, 1.0, 0.02)
    given = (probs, TV, 1.0, 0.02)
    masked = scores == -torch.inf
    _, _, right = native.gradients(*given, masked, grad, (False, False, True))
    _, _, wrong = native.gradients(*given, None, grad, (False, False, True))
    expected = reference.gradients(
        TV, scores[0].double().numpy(), 1 - 1e-5, 0.02, grad[0].double().numpy()
    )
    assert abs(right.item() - expected[2]) < 1e-3
    assert abs(wrong.item() - expected[2]) > 0.1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keys", [5, 200])
def test_masked_rows_are_zero_and_rows_that_are_no_numbers_stay_so(keys, kind):
    scores = some_scores(40, keys, spread=1.0, masked=0.0)
    scores[3] = -torch.inf
    scores[4, 1] = torch.nan
    scores[5, 2] = torch.inf
    parameters = torch.full((2, 40, 1), 0.5)
    parameters[0, 6] = parameters[1, 7] = torch.nan
    parameters[:, 8] = torch.nan
    scores[8] = -torch.inf
    probs = native.probabilities(scores, kind, *parameters)
    assert (probs[[3, 8]] == 0).all()
    assert probs[[4, 5, 6, 7]].isnan().all()
    others = [row for row in range(40) if row not in (3, 4, 5, 6, 7, 8)]
    torch.testing.assert_close(probs[others].sum(-1), torch.ones(34))
    grad = torch.randn_like(scores)
    masked = scores == -torch.inf
    results = native.gradients(probs, kind, *parameters, masked, grad, (True, True, True))
    for result in results:
        assert (result[[3, 8]] == 0).all()
        assert result[[4, 5]].isnan().all()
        assert result[others].isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [-torch.inf, -1.0, 5.0, 1e30, torch.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_a_parameter_out_of_range_ends_in_some_result_and_harms_no_other_row(place, number, kind):
    scores = some_scores(20, 33)
    parameters = torch.full((2, 20, 1), 0.5)
    clean = native.probabilities(scores, kind, *parameters)
    parameters[place, 7] = number
    probs = native.probabilities(scores, kind, *parameters)
    native.gradients(probs, kind, *parameters, None, clean, (True, True, True))
    others = [row for row in range(20) if row != 7]
    torch.testing.assert_close(probs[others], clean[others], atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_of_rows_are_numbers_or_broadcast(kind):
    scores = some_scores(4 * 6 * 5, 21).view(4, 6, 5, 21)
    epsilon = torch.linspace(0.2, 1.0, 6).view(6, 1, 1)
    strength = torch.linspace(0.1, 0.6, 20).view(4, 1, 5, 1)
    probs = native.probabilities(scores, kind, epsilon, strength)
    for sentence, head, query in ((0, 0, 0), (3, 5, 4), (1, 2, 3)):
        own = (epsilon[head].item(), strength[sentence, 0, query].item())
        alone = native.probabilities(scores[sentence, head, query][None], kind, *own)
        torch.testing.assert_close(probs[sentence, head, query], alone[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_no_bit(kind, monkeypatch):
    scores = some_scores(1024, 30)
    grad = torch.randn_like(scores)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(native, "threads_for", lambda *_, threads=threads: threads)
        probs = native.probabilities(scores, kind, 0.6, 0.2)
        rest = native.gradients(probs, kind, 0.6, 0.2, None, grad, (True, True, True))
        results.append((probs, *rest))
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (2, 0, 4)])
def test_empty_tensors_are_taken(shape, kind):
    scores = torch.zeros(shape)
    probs = native.probabilities(scores, kind, 0.5, 0.5)
    assert probs.shape == shape
    results = native.gradients(probs, kind, 0.5, 0.5, None, scores, (True, True, True))
    assert [r.shape for r in results] == [shape, (*shape[:-1], 1), (*shape[:-1], 1)]


def test_it_is_for_float32_on_a_cpu_of_every_kind():
    assert all(native.takes(torch.zeros(2, 3), kind) for kind in KINDS)
    assert not native.takes(torch.zeros(2, 3, dtype=torch.float64), TV)
    assert not native.takes(torch.zeros(2, 3), "another")
    assert library.library().entmax_lanes() in (4, 8, 16)
