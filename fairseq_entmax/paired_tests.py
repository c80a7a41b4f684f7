"""Paired tests of two systems on the same documents, and a correction for several tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq_entmax.error_messages import required


def require_scipy() -> Any:
    """Return the module ``scipy.stats``, or raise an error that says how to install it."""
    install = "the paired t-test needs scipy: run pip install 'fairseq-entmax[analysis]'"
    return required("scipy.stats", install)


def paired_t_test(first: Sequence[float], second: Sequence[float]) -> float:
    """p of the two-sided paired t-test of two systems' scores of documents; 1 if all are equal."""
    if len(first) < 2:
        raise ValueError(f"a significance test needs at least 2 sentences, not {len(first)}")
    if list(first) == list(second):
        return 1.0
    return float(require_scipy().ttest_rel(second, first).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of the p-values of several tests.

    Source: Holm 1979, *A Simple Sequentially Rejective Multiple Test Procedure*."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected
