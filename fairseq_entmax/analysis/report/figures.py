"""The papers' figures, drawn from an analysis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq_entmax.analysis.report import (
    figures_activations,
    figures_density,
    figures_grids,
    figures_heads,
    figures_maps,
    figures_segments,
    figures_values,
)
from fairseq_entmax.analysis.report.ablation_table import Ablation
from fairseq_entmax.analysis.report.ablation_table import read_ablations as read_ablations
from fairseq_entmax.analysis.report.catalogue import Drawable
from fairseq_entmax.analysis.report.charts import Analysis, Figure
from fairseq_entmax.analysis.report.figures_pruning import bleu_by_heads
from fairseq_entmax.analysis.report.pruning_table import read_pruning as read_pruning

_DRAWN = (
    figures_values.trajectories,
    figures_values.histograms,
    figures_density.density_distribution,
    figures_density.density_by_layer,
    figures_density.diversity_by_layer,
    figures_heads.confidence_and_importance,
    figures_heads.importance_agreement,
    figures_heads.offset_profile,
    figures_heads.dependency_accuracy,
    figures_activations.tag_distributions,
    figures_activations.head_matrices,
    figures_segments.attention_segments,
)


def figures(
    analysis: Analysis,
    pruning: list[dict[str, Any]] | None = None,
    ablations: Sequence[Ablation] = (),
) -> list[Figure]:
    """Every figure that the analysis has numbers for, each with a name of its own.

    Args:
        analysis: a document as ``analysis.json`` holds it.
        pruning: rows of :func:`read_pruning`, for the figure of BLEU against heads.
        ablations: of :func:`read_ablations`, for the figures of what each head is worth.
    """
    drawn = [figure for draw in _DRAWN for figure in draw(analysis)]
    drawn += figures_activations.ablation_matrices(analysis, ablations)
    return drawn + (bleu_by_heads(pruning) if pruning else [])


def drawables(
    analysis: Analysis, shown: Sequence[Figure], ablations: Sequence[Ablation] = ()
) -> list[Drawable]:
    """What can be written as files: the figures of the page, overview grids and attention maps.

    Args:
        analysis: a document as ``analysis.json`` holds it.
        shown: the figures of the page.
        ablations: of :func:`read_ablations`, for grids of what each head is worth.
    """
    return [
        *map(Drawable.of, shown),
        *figures_grids.grids(analysis, ablations),
        *figures_maps.maps(analysis),
    ]
