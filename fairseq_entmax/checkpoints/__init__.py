"""Loading checkpoints without running anything that they hold.

A checkpoint can bring code in three ways: as a pickle, which torch's safe loader refuses
(:mod:`loading`); as a setting, by which fairseq would evaluate a text, write a file or run a
command (:mod:`settings`, :mod:`literals`); and in an archive that writes outside its folder
(:mod:`archives`). That fairseq uses them is an entry of :mod:`fairseq_entmax.fairseq_patches.installing`.
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
