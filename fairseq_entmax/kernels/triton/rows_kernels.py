"""The kernels of :mod:`fairseq_entmax.kernels.triton.rows`.

A tile has the shape (chunks, rows, lanes) and holds key ``chunk * lanes + lane``. Triton spreads
the last dimensions over threads and the first over the registers of a thread. So a thread does most
of the sum of a row by itself, and neighbouring threads still read neighbouring keys.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fairseq_entmax.kernels.triton.math import (
    ANY,
    HALF,
    LOG2_E,
    MOST_STEPS,
    ONE,
    add_alpha_sums,
    alpha_gradient,
    alpha_sums,
    any_for,
    at_least,
    log_of,
    max_keys,
    newton_step,
    no_alpha_sums,
    numbers_of,
    or_without,
    power_at,
    share_of,
    solve,
    sum_keys,
)

# Numbers that change from batch to batch: one compiled program serves all their values. The number
# of keys is not among them: rows whose length is a multiple of 16 are read in wider pieces
NOT_SPECIALIZED = ["rows", "inner"]


@triton.jit
def epsilon_of(epsilon_ptr, row, is_row, inner, entries, KIND: tl.constexpr):
    """Epsilon of each row: entry ``row // inner % entries``; never 0. NaN stays NaN."""
    if KIND == HALF:
        return tl.full(row.shape, 0.5, tl.float32)
    elif KIND == ONE:
        return tl.full(row.shape, 1.0, tl.float32)
    else:
        epsilon = tl.load(epsilon_ptr + row // inner % entries, mask=is_row, other=1.0)
        return at_least(epsilon)


@triton.jit
def tile_at(rows, keys, CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr):
    """The rows, which of them exist, the keys of the first block, and where these are in memory."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    key = tl.arange(0, CHUNKS)[:, None, None] * LANES + tl.arange(0, LANES)[None, None, :]
    return row, row < rows, key, row[None, :, None] * keys + key


@triton.jit
def load_scores(scores_ptr, at, start, keys, key, is_row):
    """The tile of scores from the key ``start`` on, ``-inf`` outside, and which ones are inside."""
    inside = is_row[None, :, None] & (start + key < keys)
    scores = tl.load(scores_ptr + at + start, mask=inside, other=float("-inf"))
    return scores.to(tl.float32), inside


@triton.jit
def _largest(scores_ptr, at, keys, key, is_row, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Largest score of each row, and 1 for rows with NaN or ``+inf``, over blocks of keys."""
    top = tl.full([ROWS], float("-inf"), tl.float32)
    broken = tl.zeros([ROWS], tl.int32)
    for start in range(0, keys, BLOCK):
        scores, _ = load_scores(scores_ptr, at, start, keys, key, is_row)
        scores, is_broken = numbers_of(scores)
        broken = tl.maximum(broken, is_broken)
        top = tl.maximum(top, max_keys(scores))
    return top, broken


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def forward_kernel(
    scores_ptr, epsilon_ptr, probs_ptr, rows, keys, inner, entries,
    KIND: tl.constexpr,
    WHOLE: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Probabilities of ``ROWS`` rows; scores and probabilities ``(rows, keys)``, contiguous."""
    BLOCK: tl.constexpr = CHUNKS * LANES
    row, is_row, key, at = tile_at(rows, keys, CHUNKS, ROWS, LANES)
    given = epsilon_of(epsilon_ptr, row, is_row, inner, entries, KIND)
    epsilon = any_for(given)
    inverse = LOG2_E / epsilon
    if WHOLE:
        scores, inside = load_scores(scores_ptr, at, 0, keys, key, is_row)
        scores, broken = numbers_of(scores)
        top = max_keys(scores)
        broken = or_without(broken, given, top)
        origin = tl.where(top == float("-inf"), 0.0, top)
        tau, p, total = solve(scores - origin[None, :, None], epsilon, inverse, KIND)
        tl.store(probs_ptr + at, p * share_of(total, broken)[None, :, None], mask=inside)
    else:
        top, broken = _largest(scores_ptr, at, keys, key, is_row, BLOCK, ROWS)
        broken = or_without(broken, given, top)
        origin = tl.where(top == float("-inf"), 0.0, top)
        tau = tl.zeros([ROWS], tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        moving = 1
        step = 0
        # The last iteration finds that no row moves, so its sums are those of the result. No name
        # may alias another here: once compiled, it would keep the value it had before the loop
        while (moving > 0) & (step < MOST_STEPS):
            total = tl.zeros([ROWS], tl.float32)
            slope = tl.zeros([ROWS], tl.float32)
            for start in range(0, keys, BLOCK):
                scores, _ = load_scores(scores_ptr, at, start, keys, key, is_row)
                distance = scores - origin[None, :, None]
                p, slopes, _ = power_at(tau, distance, epsilon, inverse, KIND)
                total += sum_keys(p)
                slope += sum_keys(slopes)
            total = tl.where(broken > 0, 0.0, total)
            tau, moving = newton_step(tau, total, slope, epsilon, KIND)
            step += 1
        share = share_of(total, broken)
        for start in range(0, keys, BLOCK):
            scores, inside = load_scores(scores_ptr, at, start, keys, key, is_row)
            distance = scores - origin[None, :, None]
            p, _, _ = power_at(tau, distance, epsilon, inverse, KIND)
            tl.store(probs_ptr + at + start, p * share[None, :, None], mask=inside)


@triton.jit
def of_probs(p, epsilon, KIND: tl.constexpr, FOR_ALPHA: tl.constexpr):
    """``p ** (1 - epsilon)``, log p and ``p ** -epsilon`` on the support; 0, 0, 1 outside.

    NaN stays NaN in the first. The others are computed only if they are needed.
    """
    zero = p == 0.0
    logs = tl.zeros_like(p)
    inverse_power = logs
    if FOR_ALPHA or KIND == ANY:
        safe = tl.where(zero, 1.0, p)
        logs = log_of(safe, safe - 1.0)
    if FOR_ALPHA:
        inverse_power = tl.exp(-epsilon * logs)
    if KIND == HALF:
        sensitivity = tl.sqrt(p)
    elif KIND == ONE:
        sensitivity = tl.where(p > 0.0, 1.0, p)
    else:
        sensitivity = tl.where(p > 0.0, tl.exp((1.0 - epsilon) * logs), p)
    return sensitivity, logs, inverse_power


@triton.jit
def load_gradients(probs_ptr, grad_ptr, at, start, keys, key, is_row):
    """The tiles of probabilities and their gradients, as in :func:`load_scores`, but 0 outside."""
    inside = is_row[None, :, None] & (start + key < keys)
    p = tl.load(probs_ptr + at + start, mask=inside, other=0.0).to(tl.float32)
    return p, tl.load(grad_ptr + at + start, mask=inside, other=0.0).to(tl.float32), inside


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def backward_kernel(
    probs_ptr, epsilon_ptr, grad_ptr, grad_scores_ptr, grad_alpha_ptr, rows, keys, inner, entries,
    KIND: tl.constexpr, FOR_SCORES: tl.constexpr, FOR_ALPHA: tl.constexpr,
    WHOLE: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Gradients of ``ROWS`` rows; tensors ``(rows, keys)``, contiguous, and alpha's ``(rows,)``."""
    BLOCK: tl.constexpr = CHUNKS * LANES
    row, is_row, key, at = tile_at(rows, keys, CHUNKS, ROWS, LANES)
    epsilon = epsilon_of(epsilon_ptr, row, is_row, inner, entries, KIND)
    per_row = epsilon[None, :, None]
    if WHOLE:
        p, grad, inside = load_gradients(probs_ptr, grad_ptr, at, 0, keys, key, is_row)
        s, logs, inverse_power = of_probs(p, per_row, KIND, FOR_ALPHA)
        if FOR_SCORES:
            weights = sum_keys(s)
            middle = sum_keys(s * grad) / tl.where(weights == 0.0, 1.0, weights)
            tl.store(grad_scores_ptr + at, s * (grad - middle[None, :, None]), mask=inside)
        if FOR_ALPHA:
            centred = grad - sum_keys(p * grad)[None, :, None]
            entropy, weight, from_weight, from_mean, from_log = alpha_sums(
                p, logs, inverse_power, centred, epsilon
            )
    else:
        weights = tl.zeros([ROWS], tl.float32)
        weighted = tl.zeros([ROWS], tl.float32)
        mean = tl.zeros([ROWS], tl.float32)
        for start in range(0, keys, BLOCK):
            p, grad, _ = load_gradients(probs_ptr, grad_ptr, at, start, keys, key, is_row)
            s, _, _ = of_probs(p, per_row, KIND, False)
            weights += sum_keys(s)
            weighted += sum_keys(s * grad)
            mean += sum_keys(p * grad)
        middle = weighted / tl.where(weights == 0.0, 1.0, weights)
        entropy, weight, from_weight, from_mean, from_log = no_alpha_sums(mean)
        for start in range(0, keys, BLOCK):
            p, grad, inside = load_gradients(probs_ptr, grad_ptr, at, start, keys, key, is_row)
            s, logs, inverse_power = of_probs(p, per_row, KIND, FOR_ALPHA)
            if FOR_SCORES:
                tl.store(
                    grad_scores_ptr + at + start, s * (grad - middle[None, :, None]), mask=inside
                )
            if FOR_ALPHA:
                centred = grad - mean[None, :, None]
                entropy, weight, from_weight, from_mean, from_log = add_alpha_sums(
                    entropy, weight, from_weight, from_mean, from_log,
                    p, logs, inverse_power, centred, epsilon,
                )  # fmt: skip
    if FOR_ALPHA:
        result = alpha_gradient(entropy, weight, from_weight, from_mean, from_log, epsilon)
        tl.store(grad_alpha_ptr + row, result, mask=is_row)
