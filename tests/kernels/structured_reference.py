"""Mappings with structure in float64 with numpy, a row at a time, by other algorithms than the kernels'.

All take a row of scores, of which ``-inf`` are masked, and give its probabilities. Gradients are
differences of these.
"""

import numpy as np


def entmax(scores, epsilon):
    """Alpha-entmax by bisection of its threshold, Correia et al. 2019, eq. 6."""
    top = scores.max()
    if top == -np.inf:
        return np.zeros_like(scores)
    scaled = scores - top
    if epsilon < 1e-12:
        powers = np.exp(scaled)
        return powers / powers.sum()

    def powers_at(threshold):
        base = epsilon * (scaled - threshold)
        return np.where(base > -1, np.exp(np.log1p(np.maximum(base, -1 + 1e-300)) / epsilon), 0.0)

    low, high = 0.0, 1.0 / epsilon
    high = min(high, np.log(max(len(scores), 2)) + 1.0)
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if powers_at(middle).sum() > 1 else (low, middle)
    powers = powers_at(low)
    return powers / powers.sum()


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
    return entmax(prox_tv(scores, strength), epsilon)


def oscarmax(scores, epsilon, strength):
    return entmax(prox_oscar(scores, strength), epsilon)


def sq_pnorm_max(scores, epsilon, gamma):
    """By bisection of the threshold, Niculae and Blondel 2017: |u|_q^(2-q) sum u^(q-1) = gamma."""
    top = scores.max()
    if top == -np.inf:
        return np.zeros_like(scores)
    q = 1.0 + 1.0 / epsilon
    distances = (top - scores) / gamma

    def shares(size):  # u / max u
        return np.maximum(1.0 - distances / size, 0.0)

    def norm(size):
        v = shares(size)
        return size * (v**q).sum() ** ((2.0 - q) / q) * (v ** (q - 1.0)).sum()

    low, high = 0.5 * len(scores) ** (-2.0 / q), 1.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if norm(middle) > 1 else (middle, high)
    powers = shares(high) ** (q - 1.0)
    return powers / powers.sum()


MAPPINGS = {"tv": fusedmax, "oscar": oscarmax, "pnorm": sq_pnorm_max}


def gradients(kind, scores, epsilon, strength, grad, step=1e-5):
    """By central differences: with respect to the scores, to epsilon and to the strength.

    That of a masked key is 0.
    """
    mapping = MAPPINGS[kind]

    def difference(above, below):
        return ((mapping(*above) - mapping(*below)) * grad).sum() / (2 * step)

    for_scores = np.zeros(len(scores))
    for key in np.flatnonzero(scores > -np.inf):
        move = np.zeros(len(scores))
        move[key] = step
        for_scores[key] = difference(
            (scores + move, epsilon, strength), (scores - move, epsilon, strength)
        )
    for_epsilon = difference((scores, epsilon + step, strength), (scores, epsilon - step, strength))
    for_strength = difference(
        (scores, epsilon, strength + step), (scores, epsilon, strength - step)
    )
    return for_scores, for_epsilon, for_strength
