"""From a checkpoint with closed heads to a smaller one. Never imported by ``--user-dir``."""

from fairseq_entmax.head_names import Head, parse_heads
from fairseq_entmax.pruning.evidence import Choice
from fairseq_entmax.pruning.surgery import (
    HeadCounts,
    PruningReport,
    checkpoint_layers,
    prune_checkpoint,
    prune_state,
)

__all__ = [
    "Choice",
    "Head",
    "HeadCounts",
    "PruningReport",
    "checkpoint_layers",
    "parse_heads",
    "prune_checkpoint",
    "prune_state",
]
