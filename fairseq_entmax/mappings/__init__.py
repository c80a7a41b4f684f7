"""Scores to probabilities: functions, modules, and their text form. Needs torch only."""

from fairseq_entmax.mappings.functional import entmax, entmax15, softmax, sparsemax
from fairseq_entmax.mappings.modules import (
    Entmax,
    Entmax15,
    Mapping,
    Softmax,
    Sparsemax,
    is_fusible,
)
from fairseq_entmax.mappings.registry import (
    MAPPINGS,
    MappingSpec,
    mappings_for_layers,
    parse_mapping,
    parse_mappings,
)

__all__ = [
    "MAPPINGS",
    "Entmax",
    "Entmax15",
    "Mapping",
    "MappingSpec",
    "Softmax",
    "Sparsemax",
    "entmax",
    "entmax15",
    "is_fusible",
    "mappings_for_layers",
    "parse_mapping",
    "parse_mappings",
    "softmax",
    "sparsemax",
]
