"""The papers' figures, drawn from an analysis."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.report.charts import Analysis, Figure
from fairseq_entmax.analysis.report.figures_density import (
    density_by_layer,
    density_distribution,
    diversity_by_layer,
)
from fairseq_entmax.analysis.report.figures_heads import (
    confidence_and_importance,
    dependency_accuracy,
    importance_agreement,
    offset_profile,
)
from fairseq_entmax.analysis.report.figures_pruning import bleu_by_heads
from fairseq_entmax.analysis.report.figures_values import histograms, trajectories
from fairseq_entmax.analysis.report.pruning_table import read_pruning

__all__ = ["Figure", "figures", "read_pruning"]

_DRAWN = (
    trajectories,
    histograms,
    density_distribution,
    density_by_layer,
    diversity_by_layer,
    confidence_and_importance,
    importance_agreement,
    offset_profile,
    dependency_accuracy,
)


def figures(analysis: Analysis, pruning: list[dict[str, Any]] | None = None) -> list[Figure]:
    """Every figure that the analysis has numbers for, each with a name of its own.

    Args:
        analysis: a document as ``analysis.json`` holds it.
        pruning: rows of :func:`read_pruning`, for the figure of BLEU against heads.
    """
    drawn = [figure for draw in _DRAWN for figure in draw(analysis)]
    return drawn + (bleu_by_heads(pruning) if pruning else [])
