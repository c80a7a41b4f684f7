"""Loading checkpoints without running anything in them.

A checkpoint can bring code in three ways: as a pickle, which torch's safe loader refuses
(:mod:`loading`); as a setting by which fairseq would write a file or run a command
(:mod:`settings`); and as a text that fairseq evaluates, or an archive that writes outside its
folder (``literals`` and ``archives`` in :mod:`fairseq_entmax.fairseq_patches`).
"""

from __future__ import annotations

from fairseq_entmax.checkpoints.loading import load_checkpoint, updates_of
from fairseq_entmax.checkpoints.settings import (
    UnsafeCheckpointError,
    check_settings,
    model_settings,
)

__all__ = [
    "UnsafeCheckpointError",
    "check_settings",
    "load_checkpoint",
    "model_settings",
    "updates_of",
]
