"""Loading checkpoints without running anything that they hold.

A checkpoint can bring code in three ways: as a pickle, which torch's safe loader refuses; as
the text of a setting that fairseq hands to Python's ``eval`` when it builds the model; and in
an archive that writes files outside its folder. None of them is let through, whatever model
the checkpoint says it is of. Nor is a checkpoint loaded that would fill the memory before its
weights are looked at.

:mod:`loading` reads files, :mod:`pickles`, :mod:`stand_ins` and :mod:`zips` look through them
first, :mod:`settings` and :mod:`sizes` check what they hold for what it could do, :mod:`contents`
whether it makes sense, :mod:`literals` reads the texts that
fairseq evaluates, :mod:`archives` looks at archives. That fairseq uses them is an entry of
:mod:`fairseq_entmax.fairseq_changes`.
"""

from __future__ import annotations

from fairseq_entmax.checkpoints.contents import check_contents, malformed, updates_of
from fairseq_entmax.checkpoints.errors import (
    MalformedCheckpointError,
    UnsafeCheckpointError,
    shortened,
)
from fairseq_entmax.checkpoints.loading import load_checkpoint, model_settings
from fairseq_entmax.checkpoints.settings import check_settings

__all__ = [
    "MalformedCheckpointError",
    "UnsafeCheckpointError",
    "check_contents",
    "check_settings",
    "load_checkpoint",
    "malformed",
    "model_settings",
    "shortened",
    "updates_of",
]
