"""What the heads of trained models do. Never imported by ``--user-dir``.

    from fairseq_entmax.analysis import AttentionRecorder, load_model, measure

What is named here is imported when it is first used, as it needs fairseq.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairseq_entmax.analysis.annotations.annotated import Annotations as Annotations
    from fairseq_entmax.analysis.importance.relevance import HeadRelevance as HeadRelevance
    from fairseq_entmax.analysis.importance.relevance import head_relevance as head_relevance
    from fairseq_entmax.analysis.importance.sensitivity import head_sensitivity as head_sensitivity
    from fairseq_entmax.analysis.loading import load_task as load_task
    from fairseq_entmax.analysis.looking.looks import Look as Look
    from fairseq_entmax.analysis.looking.looks import look as look
    from fairseq_entmax.analysis.maps import decode_weights as decode_weights
    from fairseq_entmax.analysis.models import LoadedModel as LoadedModel
    from fairseq_entmax.analysis.models import load_model as load_model
    from fairseq_entmax.analysis.notebook import measure as measure
    from fairseq_entmax.analysis.recorder import AttentionRecorder as AttentionRecorder
    from fairseq_entmax.analysis.recorder import record_attention as record_attention
    from fairseq_entmax.analysis.sentences import load_samples as load_samples

_HOMES = {
    "Annotations": "annotations.annotated",
    "AttentionRecorder": "recorder",
    "HeadRelevance": "importance.relevance",
    "LoadedModel": "models",
    "Look": "looking.looks",
    "decode_weights": "maps",
    "head_relevance": "importance.relevance",
    "head_sensitivity": "importance.sensitivity",
    "load_model": "models",
    "load_samples": "sentences",
    "load_task": "loading",
    "look": "looking.looks",
    "measure": "notebook",
    "record_attention": "recorder",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module("fairseq_entmax.compat")  # for its message where there is no fairseq
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
