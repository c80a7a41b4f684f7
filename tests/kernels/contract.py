"""What every kernel has to give: the results of torch's operations in float64, row by row.

A batch combines extreme scores, ties, masks, rows without keys, NaN, and an epsilon for each row.
The first row that differs is printed.
"""

import math
from typing import NamedTuple

import torch

from fairseq_entmax.kernels import functions, torch_ops, torch_structured
from fairseq_entmax.kernels.dropout import factors
from fairseq_entmax.kernels.inputs import ScoreSettings
from fairseq_entmax.kernels.structure import OSCAR, PLAIN, PNORM, TV

INF, NAN = math.inf, math.nan
LENGTHS = (1, 2, 3, 5, 8, 17, 31, 64, 100, 161, 513, 1100)
FEW_LENGTHS = (1, 5, 17, 64)
EPSILONS = (0.0, 1e-9, 1e-4, 0.01, 0.1, 0.25, 0.33, 0.5, 0.75, 0.9999, 1.0)


class Batch(NamedTuple):
    """``scores`` and ``grad`` are ``(rows, keys)`` in float32, ``epsilon`` is ``(rows, 1)``."""

    scores: torch.Tensor
    epsilon: torch.Tensor
    grad: torch.Tensor


def batch(keys, seed=0, epsilons=EPSILONS, broken=True):
    """Rows of every kind, each with several epsilons; ``broken`` adds rows with NaN and inf."""
    draw = torch.Generator().manual_seed(1000 * seed + keys)

    def normal(scale):
        return scale * torch.randn(keys, generator=draw)

    masked = torch.rand(keys, generator=draw) < 0.4
    masked[torch.randint(keys, (1,), generator=draw)] = False
    kinds = [
        normal(0.1),
        normal(1.0),
        normal(8.0),
        normal(50.0),
        normal(2.0).round(),  # ties
        torch.full((keys,), -4.25),
        normal(1.0).masked_fill(masked, -INF),
        normal(1.0).round().masked_fill(masked, -INF),
        torch.full((keys,), -INF).index_fill(0, torch.tensor([keys // 2]), 0.5),
        torch.full((keys,), -INF),
        normal(1.0) + 1e4,
        torch.tensor([3e38, -3e38] * keys)[:keys],
        # A slope, in which neighbours have close values
        torch.arange(keys) / keys * 2.0,
        *([normal(1.0).index_fill(0, torch.tensor([0]), bad) for bad in (NAN, INF)] * broken),
    ]
    pairs = [(scores, epsilon) for scores in kinds for epsilon in epsilons]
    if broken:
        pairs += [(kinds[1], NAN), (kinds[9], NAN)]
    scores = torch.stack([scores for scores, _ in pairs])
    epsilon = torch.tensor([[epsilon] for _, epsilon in pairs])
    return Batch(scores, epsilon, torch.randn(scores.shape, generator=draw))


def assert_rows(ours, truth, atol, given, rtol=0.0):
    """Assert that each row is close to the truth, and show the first other row with its inputs."""
    ours, truth = ours.double().flatten(0, -2), truth.double().flatten(0, -2)
    assert ours.shape == truth.shape
    scale = atol + rtol * truth.nan_to_num(0.0).abs().amax(-1, keepdim=True)
    same = ((ours - truth).abs() <= scale) | (ours == truth) | (ours.isnan() & truth.isnan())
    wrong = (~same).any(-1).nonzero().flatten().tolist()
    if wrong:
        row = wrong[0]
        made_of = "\n".join(
            f"{name}: {(value[row] if len(value) == len(ours) else value).tolist()}"
            for name, value in given.items()
        )
        raise AssertionError(
            f"{len(wrong)} rows differ, first {row}\nours: {ours[row].tolist()}\n"
            f"truth: {truth[row].tolist()}\n{made_of}"
        )


def check_rows(backend, made, number=None, device="cpu"):
    """Check probabilities and gradients of a batch; ``number`` is one epsilon for all rows."""
    scores, epsilon, grad = (tensor.to(device) for tensor in made)
    given = {"scores": made.scores, "epsilon": made.epsilon, "grad": made.grad}
    own = epsilon if number is None else number
    exact = epsilon.double() if number is None else number
    before = scores.clone()
    probs = backend.probabilities(scores, PLAIN, own)
    assert torch.equal(before.nan_to_num(7), scores.nan_to_num(7))
    truth = torch_ops.probabilities(scores.double(), exact)
    assert_rows(probs.cpu(), truth.cpu(), 1e-6, given)
    rows = truth.isfinite().all(-1)
    assert (probs[rows][scores[rows] == -INF] == 0).all()
    # Both start from the same probabilities, so that they agree on the support at its edge
    both = (True, True, False)
    found = backend.gradients(probs, PLAIN, own, 0.0, None, grad, both)
    truth = torch_structured.gradients(probs.double(), PLAIN, exact, 0.0, None, grad.double(), both)
    assert_rows(found[0].cpu(), truth[0].cpu(), 2e-6, given, 2e-5)
    assert_rows(found[1].cpu(), truth[1].cpu(), 1e-5, given, 2e-5)
    # As a hook on saved tensors may return them, in another memory layout
    probs = probs.mT.contiguous().mT
    alone = backend.gradients(probs, PLAIN, own, 0.0, None, grad, (False, True, False))
    assert alone[0] is None
    assert torch.equal(alone[1].nan_to_num(7), found[1].nan_to_num(7))
    alone = backend.gradients(probs, PLAIN, own, 0.0, None, grad, (True, False, False))
    assert alone[1] is None


STRENGTHS = {TV: (0, 0.01, 0.1, 1, 1e6), OSCAR: (0, 0.001, 0.05, 1e6), PNORM: (0.01, 1, 50)}


def check_structured(backend, structure, keys):
    """Check probabilities and gradients of a structured mapping at all of its strengths."""
    for strength in STRENGTHS[structure]:
        made = batch(keys, epsilons=(0.1, 0.5, 1.0) if structure == PNORM else (0.0, 0.33, 1.0))
        scores, epsilon, grad = (tensor[:-1] for tensor in made)  # not the row with only NaN
        # Clamped, so that float32 keeps the digits that decide which keys share a probability
        scores = scores.clamp(min=-INF, max=1e4)
        own = torch.full_like(epsilon, strength)
        given = {"scores": scores, "epsilon": epsilon, "strength": own, "grad": grad}
        probs = backend.probabilities(scores, structure, epsilon, own)
        exact = epsilon.double(), own.double()
        truth = torch_structured.probabilities(scores.double(), structure, *exact)
        size = scores.masked_fill(~scores.isfinite(), 0.0).abs().amax(-1, keepdim=True)
        is_large = size > 100
        assert_rows(probs[~is_large[:, 0]], truth[~is_large[:, 0]], 6e-6, {})
        assert_rows(probs * ~is_large, truth * ~is_large, 6e-6, given)
        if structure == TV:
            together = (truth.diff().abs() < 1e-12) & (truth[:, 1:] > 1e-6) & ~is_large
            assert (probs.diff()[together] == 0).all()
        assert (probs.nan_to_num(1.0).sum(-1)[probs.isfinite().all(-1)] <= 1 + 1e-5).all()
        masked = scores == -INF
        wanted = (True, True, True)
        found = backend.gradients(probs, structure, epsilon, own, masked, grad, wanted)
        exact = (*exact, masked, grad.double(), wanted)
        expected = torch_structured.gradients(probs.double(), structure, *exact)
        for ours, other in zip(found, expected, strict=True):
            assert_rows(ours, other, 1e-4, given, 1e-4)


class Case(NamedTuple):
    """Sizes and settings of attention."""

    sizes: tuple[int, int, int, int, int]  # batch, heads, queries, keys, size of a head
    padding: bool = False
    mask: bool = False
    causal: bool = False
    dropout: float = 0.0
    bad: float = 0.0  # put into a query
    spread: float = 3.0


CASES = (
    Case((2, 3, 5, 7, 8)),
    Case((1, 1, 1, 1, 4)),
    Case((2, 2, 17, 33, 20), padding=True),
    Case((3, 4, 16, 16, 32), causal=True),
    Case((2, 3, 35, 35, 16), padding=True, mask=True, causal=True),
    Case((2, 2, 9, 161, 64), mask=True),
    Case((1, 2, 40, 7, 16), causal=True),  # the first queries see no key
    Case((2, 4, 30, 30, 16), padding=True, dropout=0.3),
    Case((1, 2, 33, 190, 8), padding=True, mask=True, dropout=0.5),
    Case((2, 2, 35, 170, 8), padding=True, causal=True, spread=0.3),  # most keys are in the support
    Case((2, 2, 12, 20, 8), padding=True, bad=NAN),
    Case((2, 2, 12, 20, 8), bad=INF),
)


def tensors_of(case, seed=0):
    """Query, key, value and the gradient of the output in float32, and the settings."""
    draw = torch.Generator().manual_seed(seed)
    sentences, heads, queries, keys, size = case.sizes
    lengths = (queries, keys, keys, queries)
    made = [torch.randn(sentences, heads, length, size, generator=draw) for length in lengths]
    made[0] *= case.spread / size**0.5
    if case.bad:
        made[0][0, 0, 1, 0] = case.bad
    padding = mask = None
    if case.padding:
        padding = torch.rand(sentences, keys, generator=draw) < 0.3
        padding[-1] = True  # a sentence without keys
    if case.mask:
        mask = torch.randn(queries, keys, generator=draw)
        mask[torch.rand(queries, keys, generator=draw) < 0.2] = -INF
    seed = torch.tensor([12345]) if case.dropout else None
    return made, ScoreSettings(padding, mask, case.causal, 0.7, case.dropout, seed)


def in_float64(made, epsilon, settings):
    """The differentiable output, computed step by step."""
    query, key, value = made
    mask = settings.attn_mask
    settings = settings._replace(attn_mask=None if mask is None else mask.double())
    scores = masked_scores_in_float64(query, key, settings)
    if isinstance(epsilon, torch.Tensor):
        epsilon = epsilon.view(1, -1, 1, 1)
    probs = functions.map_rows(torch_structured, scores, PLAIN, epsilon)
    if settings.dropout:
        probs = probs * factors(tuple(probs.shape), settings.dropout, settings.seed, probs.device)
    # A zero weight removes its value, whatever that value is
    return probs @ value


def masked_scores_in_float64(query, key, settings):
    """Loops, where :func:`fairseq_entmax.kernels.inputs.masked_scores` uses tensor operations."""
    scores = settings.scale * torch.einsum("bhqd,bhkd->bhqk", query, key)
    queries, keys = scores.shape[-2:]
    hidden = torch.zeros(scores.shape, dtype=torch.bool)
    for sentence in range(scores.size(0)):
        for place in range(queries):
            if settings.causal:
                hidden[sentence, :, place, max(0, place + 1 + keys - queries) :] = True
            if settings.key_padding_mask is not None:
                hidden[sentence, :, place, settings.key_padding_mask[sentence]] = True
    if settings.attn_mask is not None:
        hidden |= settings.attn_mask == -INF
        scores = scores + settings.attn_mask.masked_fill(settings.attn_mask == -INF, 0.0)
    return scores.masked_fill(hidden, -INF)


def check_attention(attention, case, epsilon, atol=2e-5, dtype=torch.float32, device="cpu"):
    """Check the output and all gradients of attention."""
    made, settings = tensors_of(case)
    *inputs, grad = (tensor.to(dtype) for tensor in made)
    options = {
        name: one.to(device) if isinstance(one, torch.Tensor) and name != "seed" else one
        for name, one in settings._asdict().items()
    }

    def leaf(one, **to):
        return one.detach().clone().to(**to).requires_grad_()

    true_leaves = [leaf(one, dtype=torch.float64) for one in inputs]
    leaves = [leaf(one, device=device) for one in inputs]
    if isinstance(epsilon, torch.Tensor):
        true_leaves.append(leaf(epsilon, dtype=torch.float64))
        leaves.append(leaf(epsilon, device=device))
    truth = in_float64(true_leaves[:3], (*true_leaves, epsilon)[3], settings)
    output = attention(*leaves[:3], (*leaves, epsilon)[3], **options)
    assert output.dtype == dtype
    given = {"epsilon": torch.as_tensor(epsilon).view(1, -1)}
    assert_rows(output.detach().cpu(), truth.detach(), atol, given, atol)
    if case.bad:  # gradients that share a row with the bad value are not finite in either
        return
    truth.backward(grad.double())
    output.backward(grad.to(device))
    for ours, other in zip(leaves, true_leaves, strict=True):
        found, expected = (
            one if one.dim() > 1 else one.view(1, -1) for one in (ours.grad.cpu(), other.grad)
        )
        assert_rows(found, expected, atol, given, 10 * atol)
