"""Analysis of what the heads of trained models do. ``--user-dir`` never imports this package.

    from fairseq_entmax.analysis import AttentionRecorder, load_model, measure

Names are imported on first use, because they need fairseq.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairseq_entmax.analysis.data.annotations.annotated import Annotations as Annotations
    from fairseq_entmax.analysis.data.loading import load_task as load_task
    from fairseq_entmax.analysis.data.samples import load_samples as load_samples
    from fairseq_entmax.analysis.document.maps import decode_weights as decode_weights
    from fairseq_entmax.analysis.importance.relevance import HeadRelevance as HeadRelevance
    from fairseq_entmax.analysis.importance.relevance import head_relevance as head_relevance
    from fairseq_entmax.analysis.importance.sensitivity import head_sensitivity as head_sensitivity
    from fairseq_entmax.analysis.looks.look import Look as Look
    from fairseq_entmax.analysis.looks.look import look as look
    from fairseq_entmax.analysis.models.loaded import LoadedModel as LoadedModel
    from fairseq_entmax.analysis.models.loaded import load_model as load_model
    from fairseq_entmax.analysis.models.recorder import AttentionRecorder as AttentionRecorder
    from fairseq_entmax.analysis.models.recorder import record_attention as record_attention
    from fairseq_entmax.analysis.passes.notebook import measure as measure

_HOMES = {
    "Annotations": "data.annotations.annotated",
    "AttentionRecorder": "models.recorder",
    "HeadRelevance": "importance.relevance",
    "LoadedModel": "models.loaded",
    "Look": "looks.look",
    "decode_weights": "document.maps",
    "head_relevance": "importance.relevance",
    "head_sensitivity": "importance.sensitivity",
    "load_model": "models.loaded",
    "load_samples": "data.samples",
    "load_task": "data.loading",
    "look": "looks.look",
    "measure": "passes.notebook",
    "record_attention": "models.recorder",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module("fairseq_entmax.compat")  # raises a clear error without fairseq
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
