"""Texts for numbers, the same in all rows of the table."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

import numpy

from claims.statistics import Bootstrap, HeadStatistic, seed_interval

NAMES = {
    "softmax": "softmax",
    "entmax15": "1.5-entmax",
    "sparsemax": "sparsemax",
    "entmax": "learned α",
    "entmax-tv": "learned α, learned total variation",
}
RISING = re.compile(r"rise(\d+)-(.*)")  # models of claims_job.sh


def name_of(model: str) -> str:
    if rising := RISING.fullmatch(model):
        return f"{name_of(rising[2])}, rising in {rising[1]} %"
    return NAMES.get(model, model)


def number(value: float, digits: int = 2, signed: bool = False) -> str:
    """The number with a true minus, never a negative zero; a dash for nan."""
    if math.isnan(value):
        return "–"
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def over_seeds(
    values: Collection[float], digits: int = 2, signed: bool = False, least: float = -math.inf
) -> str:
    """The mean with its interval, such as ``0.31 [0.25, 0.37]``; `least` cuts it off there and at 1."""
    low, high = seed_interval(values)
    centre = number(float(numpy.mean(list(values))), digits, signed)
    if math.isnan(low):
        return centre
    if least > -math.inf:
        low, high = max(low, least), min(high, 1.0)
    return f"{centre} [{number(low, digits, signed)}, {number(high, digits, signed)}]"


def signed(values: Collection[float], digits: int = 2) -> str:
    return over_seeds(values, digits, signed=True)


def of_seeds(values: Sequence[float], signs: bool = False) -> str:
    """Such as ``(0.37, 0.43)``."""
    return f"({', '.join(number(value, signed=signs) for value in values)})"


def as_share(values: Sequence[float]) -> str:
    return f"{over_seeds(values, least=0.0)} {of_seeds(values)}"


def as_correlation(values: Sequence[float]) -> str:
    return f"{over_seeds(values, signed=True, least=-1.0)} {of_seeds(values, signs=True)}"


def p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def of_bootstrap(found: Bootstrap) -> str:
    low, high = number(found.low, signed=True), number(found.high, signed=True)
    return f"bootstrap [{low}, {high}], {p_value(found.p)}"


def p_of_sides(tested: HeadStatistic) -> str:
    """The claim's one-sided p, and that of the other side if it is significant."""
    other = f"; of the other side {p_value(tested.less)}" if tested.less < 0.05 else ""
    return p_value(tested.greater) + other


def listed(parts: Mapping[str, str]) -> str:
    """Such as ``encoder-self 0.3; cross 0.2``."""
    return "; ".join(f"{name} {value}" for name, value in parts.items())


def counts(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
