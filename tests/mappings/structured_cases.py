"""The structured mappings with one signature, each with its reference, and rows to try them on."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from fairseq_entmax.kernels.structure import OSCAR, PNORM, TV
from fairseq_entmax.mappings import fusedmax, oscarmax, sq_pnorm_max
from tests.mappings.reference import random_rows
from tests.mappings.structured_reference import fusedmax_rows, oscarmax_rows, pnorm_rows

INF, NAN = math.inf, math.nan


class Case(NamedTuple):
    """A mapping with its two parameters: ``shape`` is alpha or p, ``strength`` lambda or gamma."""

    structure: str
    function: Callable[..., torch.Tensor]  # scores, shape, strength, dim
    truth: Callable[..., torch.Tensor]  # scores, shape, strength
    shapes: tuple[float, ...]
    strengths: tuple[float, ...]
    shape: float  # a value of each, away from the ends of its range
    strength: float


CASES = {
    "fusedmax": Case(
        TV,
        lambda scores, alpha, tv, dim=-1: fusedmax(scores, tv, alpha, dim),
        lambda scores, alpha, tv: fusedmax_rows(scores, tv, alpha),
        (1.0, 1.01, 1.33, 1.5, 1.75, 2.0),
        (0.0, 0.01, 0.1, 0.7, 10.0, 1e6),
        1.4,
        0.2,
    ),
    "oscarmax": Case(
        OSCAR,
        lambda scores, alpha, oscar, dim=-1: oscarmax(scores, oscar, alpha, dim),
        lambda scores, alpha, oscar: oscarmax_rows(scores, oscar, alpha),
        (1.0, 1.01, 1.33, 1.5, 1.75, 2.0),
        (0.0, 0.001, 0.01, 0.1, 1.0, 1e6),
        1.4,
        0.1,
    ),
    "sq_pnorm_max": Case(
        PNORM,
        lambda scores, p, gamma, dim=-1: sq_pnorm_max(scores, p, gamma, dim),
        pnorm_rows,
        (1.01, 1.1, 1.33, 1.5, 1.75, 2.0),
        (1e-3, 0.1, 1.0, 5.0, 1e3, 1e6),
        1.6,
        0.8,
    ),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def size_of(scores):
    """The largest absolute score that is not masked, at least 1; errors are relative to it."""
    return max(1.0, scores.masked_fill(scores == -INF, 0.0).abs().max().item())


def largest_error(result, truth):
    """The largest error at keys that are not masked; the masked keys have to be the same."""
    assert result.shape == truth.shape
    result, masked = result.double(), truth == -INF
    assert torch.equal(result == -INF, masked)
    return (result - truth).masked_fill(masked, 0.0).abs().max().item()


def tied_rows(keys):
    """Named groups of float64 rows that contain many equal scores."""
    steps = random_rows(4, keys, 1.0, seed=keys + 1).sign()
    ramp = torch.arange(keys, dtype=torch.float64)
    return {
        "normal": random_rows(4, keys, 1.0, seed=keys).bfloat16().double(),
        "large": random_rows(4, keys, 30.0, seed=keys).bfloat16().double(),
        "whole numbers": random_rows(4, keys, 2.0, seed=keys).round(),
        "constants": torch.tensor([[0.0], [-3.25], [0.1]], dtype=torch.float64).repeat(1, keys),
        "ramps": torch.stack([ramp / 16, -ramp / 64, (ramp / 8).floor()]),
        "random walks": steps.cumsum(-1) / 4,
        "stairs": random_rows(4, keys // 8 + 1, 1.0, seed=keys).repeat_interleave(8, -1)[:, :keys],
    }


def gapped_rows(keys=12):
    """``(6, keys)``: padding at the end or start, gaps, single keys, one key, and no key."""
    scores = random_rows(6, keys, 1.0, seed=5)
    scores[0, -3:] = -INF
    scores[1, :4] = -INF
    scores[2, 3:5] = -INF
    scores[3, ::2] = -INF
    scores[4] = -INF
    scores[4, keys // 2] = 0.5
    scores[5] = -INF
    return scores


def gradients_of(function, grad, *inputs: Any):
    """Gradients of ``(function(*inputs) * grad).sum()`` with respect to every input."""
    leaves = [value.clone().requires_grad_() for value in inputs]
    function(*leaves).backward(grad)
    return [leaf.grad for leaf in leaves]
