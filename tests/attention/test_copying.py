"""The mixture of generator and copy, compared with loops over words, and its gradients."""

import pytest
import torch

from fairseq_entmax.attention.copying import CopyParts, log_mix, mixture_log_probs, mixture_loss

WORDS, MARKERS = 7, 4
# Repeated words, padding (0) with weight 0, and a source that consists of markers
SOURCES = torch.tensor([[1, 3, 1, 9, 8], [7, 7, 2, 0, 0], [10, 8, 10, 7, 9]])
TARGETS = torch.tensor([[1, 8, 5], [7, 10, 9], [10, 2, 9]])


def parts(sparse=False, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (*TARGETS.shape, SOURCES.size(1))
    weights = torch.rand(shape, generator=generator, dtype=torch.float64)
    weights[1, :, 3:] = 0.0
    if sparse:
        weights[weights < 0.6] = 0.0
        weights[..., 0] += 0.1
    weights = weights / weights.sum(-1, keepdim=True)
    switch = 3 * torch.randn(TARGETS.shape, generator=generator, dtype=torch.float64)
    return CopyParts(switch.to(dtype), weights.to(dtype), SOURCES)


def logits(dtype=torch.float64, scale=3.0):
    generator = torch.Generator().manual_seed(1)
    shape = (*TARGETS.shape, WORDS)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def brute_force(scores, copy):
    """The probabilities, one word at a time, in float64."""
    generated = scores.double().softmax(-1)
    g = torch.sigmoid(copy.switch.double())
    probs = torch.zeros(*g.shape, WORDS + MARKERS, dtype=torch.float64)
    for sentence in range(g.size(0)):
        for step in range(g.size(1)):
            share = g[sentence, step]
            for word in range(WORDS):
                probs[sentence, step, word] += share * generated[sentence, step, word]
            for position, word in enumerate(copy.source[sentence].tolist()):
                weight = copy.weights[sentence, step, position].double()
                probs[sentence, step, word] += (1 - share) * weight
    return probs


@pytest.mark.parametrize("sparse", [False, True])
def test_the_mixture_matches_a_loop_over_words(sparse):
    copy = parts(sparse)
    log_probs = mixture_log_probs(logits(), copy, WORDS + MARKERS)
    expected = brute_force(logits(), copy)
    torch.testing.assert_close(log_probs.exp(), expected, atol=1e-14, rtol=0)
    assert torch.equal(log_probs == -torch.inf, expected == 0)


@pytest.mark.parametrize("switch", [-200.0, -80.0, 80.0, 200.0])
def test_an_extreme_switch_leaves_one_part_and_no_nan(switch):
    copy = parts(dtype=torch.float32)._replace(switch=torch.full(TARGETS.shape, switch))
    log_probs = mixture_log_probs(logits(torch.float32), copy, WORDS + MARKERS)
    expected = brute_force(logits(torch.float32), copy)
    torch.testing.assert_close(log_probs.double().exp(), expected, atol=1e-6, rtol=0)
    assert not log_probs.isnan().any()


@pytest.mark.parametrize("sparse", [False, True])
def test_the_loss_matches_the_whole_mixture(sparse):
    copy = parts(sparse)
    result = mixture_loss(logits(), copy, TARGETS, with_smooth=True)
    log_probs = brute_force(logits(), copy).log()
    of_target = log_probs.gather(2, TARGETS[..., None])[..., 0]
    assert torch.equal(result.reachable, of_target > -torch.inf)
    expected = -of_target.masked_fill(~result.reachable, 0.0)
    torch.testing.assert_close(result.nll, expected, atol=1e-12, rtol=0)
    smooth = -log_probs[..., :WORDS].sum(-1)
    torch.testing.assert_close(result.smooth, smooth, atol=1e-12, rtol=0)
    assert not result.reachable.all()  # marker 9 is not in the second source


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_matches_float64_on_the_rounded_logits(dtype, scale):
    rounded = logits(dtype, scale)
    copy = parts(sparse=True, dtype=torch.float32)
    result = mixture_loss(rounded, copy, TARGETS, with_smooth=True)
    expected = mixture_loss(rounded.double(), copy, TARGETS, with_smooth=True)
    torch.testing.assert_close(result.nll.double(), expected.nll, atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(result.smooth.double(), expected.smooth, atol=1e-4, rtol=1e-6)
    probs = mixture_log_probs(rounded, copy, WORDS + MARKERS).double().exp()
    torch.testing.assert_close(probs, brute_force(rounded, copy), atol=1e-6, rtol=0)


def test_computing_rows_in_slices_does_not_change_the_result(monkeypatch):
    results = []
    for rows in (100, 2):
        monkeypatch.setattr("fairseq_entmax.attention.copying._ROWS_AT_ONCE", rows * WORDS)
        scores = logits().requires_grad_()
        loss = mixture_loss(scores, parts(), TARGETS, with_smooth=True)
        (loss.nll + loss.smooth).sum().backward()
        results.append((loss.nll, loss.smooth, scores.grad))
    torch.testing.assert_close(*results, atol=1e-12, rtol=0)


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_match_finite_differences(sparse):
    """Weights of 0 stay fixed, because the mixture has a kink at 0."""
    copy = parts(sparse)
    support = copy.weights > 0

    def moved(switch, nonzero):
        weights = torch.zeros_like(copy.weights).masked_scatter(support, nonzero)
        return copy._replace(switch=switch, weights=weights)

    def mixture(scores, switch, nonzero):
        return mixture_log_probs(scores, moved(switch, nonzero), WORDS + MARKERS).exp()

    def loss(scores, switch, nonzero):
        result = mixture_loss(scores, moved(switch, nonzero), TARGETS, with_smooth=True)
        return result.nll, result.smooth

    inputs = logits(), copy.switch.clone(), copy.weights[support]
    for value in inputs:
        value.requires_grad_()
    assert torch.autograd.gradcheck(mixture, inputs)
    assert torch.autograd.gradgradcheck(mixture, inputs)
    assert torch.autograd.gradcheck(loss, inputs)


def test_the_gradient_of_a_zero_weight_is_its_right_derivative():
    a, b = torch.tensor([-3.0], dtype=torch.float64), torch.tensor([-0.5], dtype=torch.float64)
    c = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    log_mix(a, b, c).sum().backward()
    step = 1e-7
    right = (log_mix(a, b, torch.tensor([step], dtype=torch.float64)) - a) / step
    torch.testing.assert_close(c.grad, right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("generated", "copied", "share", "mixed", "of_share"),
    [
        # What neither part can produce has no gradient,
        (-torch.inf, -0.5, 0.0, -torch.inf, 0.0),
        (-torch.inf, -200.0, 0.0, -torch.inf, 0.0),
        # and the gradient is finite where the generator gives almost nothing
        *((a, -1e-7, 0.0, a, 1e30) for a in (-1000.0, -100.0, -88.0)),
    ],
)
def test_gradients_are_finite_at_the_extremes(generated, copied, share, mixed, of_share):
    inputs = [torch.tensor([value], requires_grad=True) for value in (generated, copied, share)]
    found = log_mix(*inputs)
    assert found.item() == mixed
    found.masked_fill(found == -torch.inf, 0.0).sum().backward()
    assert all(value.grad.isfinite().all() for value in inputs)
    assert inputs[2].grad >= of_share
    assert of_share or not any(value.grad.any() for value in inputs)
