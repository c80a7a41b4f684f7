"""Mappings with structure in float64 with numpy, by other algorithms than the kernels'.

Of the scores ``-inf`` are masked. Gradients are differences of the probabilities.
"""

import numpy as np


def entmax(scores, epsilon):
    """Alpha-entmax by bisection of its threshold, Correia et al. 2019, eq. 6: (rows, keys), (rows, 1)."""
    top = scores.max(-1, keepdims=True)
    scaled = scores - np.where(top == -np.inf, 0.0, top)

    def powers_at(threshold):
        base = np.maximum(epsilon * (scaled - threshold), -1 + 1e-16)
        return np.where(base > -1 + 1e-15, np.exp(np.log1p(base) / epsilon), 0.0)

    low = np.zeros_like(top)
    high = np.minimum(1.0 / epsilon, np.log(max(scores.shape[-1], 2)) + 1.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        is_low = powers_at(middle).sum(-1, keepdims=True) > 1
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    powers = powers_at(low)
    return powers / np.where(top == -np.inf, 1.0, powers.sum(-1, keepdims=True))


def chain_prox(scores, strength):
    """Total variation's proximal operator of one chain: Condat 2013, the algorithm of section 2."""
    last = len(scores) - 1
    result = np.empty(len(scores))
    start = place = low_end = high_end = 0
    low, high = scores[0] - strength, scores[0] + strength
    low_flux, high_flux = strength, -strength
    while True:
        if place == last:
            if low_flux < 0:
                result[start : low_end + 1] = low
                start = place = low_end = low_end + 1
                low, low_flux = scores[place], strength
                high_flux = low + strength - high
            elif high_flux > 0:
                result[start : high_end + 1] = high
                start = place = high_end = high_end + 1
                high, high_flux = scores[place], -strength
                low_flux = high - strength - low
            else:
                result[start:] = low + low_flux / (place - start + 1)
                return result
            continue
        following = scores[place + 1]
        if following + low_flux < low - strength:
            result[start : low_end + 1] = low
            start = place = low_end = high_end = low_end + 1
            low, high = scores[place], scores[place] + 2 * strength
            low_flux, high_flux = strength, -strength
        elif following + high_flux > high + strength:
            result[start : high_end + 1] = high
            start = place = low_end = high_end = high_end + 1
            low, high = scores[place] - 2 * strength, scores[place]
            low_flux, high_flux = strength, -strength
        else:
            place += 1
            low_flux += following - low
            high_flux += following - high
            if low_flux >= strength:
                low += (low_flux - strength) / (place - start + 1)
                low_flux, low_end = strength, place
            if high_flux <= -strength:
                high += (high_flux + strength) / (place - start + 1)
                high_flux, high_end = -strength, place


def prox_tv(scores, strength):
    """The same of each run of keys that are not masked."""
    result = np.full(len(scores), -np.inf)
    kept = np.concatenate([[False], scores > -np.inf, [False]])
    edges = np.flatnonzero(kept[1:] != kept[:-1])
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        result[first:end] = chain_prox(scores[first:end], strength)
    return result


def prox_oscar(scores, strength):
    """Isotonic regression of sorted scores plus ranks times the strength, by pooling."""
    order = np.argsort(-scores, kind="stable")
    pools = []  # of a sum and a number of keys
    for rank, score in enumerate(scores[order]):
        if score == -np.inf:
            break
        pools.append([score + strength * rank, 1])
        while len(pools) > 1 and pools[-1][0] / pools[-1][1] > pools[-2][0] / pools[-2][1]:
            total, number = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += number
    result = np.full(len(scores), -np.inf)
    values = [total / number for total, number in pools for _ in range(number)]
    result[order[: len(values)]] = values
    return result


def fusedmax(scores, epsilon, strength):
    rows = zip(scores, strength[:, 0], strict=True)
    return entmax(np.stack([prox_tv(*row) for row in rows]), epsilon)


def oscarmax(scores, epsilon, strength):
    rows = zip(scores, strength[:, 0], strict=True)
    return entmax(np.stack([prox_oscar(*row) for row in rows]), epsilon)


def sq_pnorm_max(scores, epsilon, gamma):
    """By bisection of the threshold, Niculae and Blondel 2017: |u|_q^(2-q) sum u^(q-1) = gamma."""
    top = scores.max(-1, keepdims=True)
    q = 1.0 + 1.0 / epsilon
    distances = (np.where(top == -np.inf, 0.0, top) - scores) / gamma

    def shares(size):  # u / max u
        return np.maximum(1.0 - distances / size, 0.0)

    def norm(size):
        v = shares(size)
        total = np.maximum((v**q).sum(-1, keepdims=True), 1e-300)
        return size * total ** ((2.0 - q) / q) * (v ** (q - 1.0)).sum(-1, keepdims=True)

    low, high = 0.5 * scores.shape[-1] ** (-2.0 / q), np.ones_like(top)
    for _ in range(60):
        middle = 0.5 * (low + high)
        is_high = norm(middle) > 1
        low, high = np.where(is_high, low, middle), np.where(is_high, middle, high)
    powers = shares(high) ** (q - 1.0)
    return powers / np.where(top == -np.inf, 1.0, powers.sum(-1, keepdims=True))


MAPPINGS = {"tv": fusedmax, "oscar": oscarmax, "pnorm": sq_pnorm_max}


def probabilities(kind, scores, epsilon, strength):
    """Of rows ``(rows, keys)``, with numbers or ``(rows, 1)`` as parameters."""
    parameters = [np.broadcast_to(p, (len(scores), 1)).astype(float) for p in (epsilon, strength)]
    return MAPPINGS[kind](scores, *parameters)


def gradients(kind, scores, epsilon, strength, grad, step=1e-5):
    """By central differences: with respect to the scores, to epsilon and to the strength.

    Args:
        scores: (keys,), of which not all are masked; the gradient of a masked key is 0.
        epsilon, strength: numbers.
        grad: (keys,), with respect to the probabilities.
    """
    moves = np.diag(np.where(scores == -np.inf, 0.0, step))
    moves = np.pad(moves, ((0, 2), (0, 2)))
    moves[-2, -2] = moves[-1, -1] = step
    moves = np.concatenate([moves, -moves])
    probs = probabilities(
        kind, scores + moves[:, :-2], epsilon + moves[:, -2:-1], strength + moves[:, -1:]
    )
    above, below = np.split(probs @ grad / (2 * step), 2)
    return (above - below)[:-2], *(above - below)[-2:]
