"""Mappings from scores to probabilities: functions, modules, their text form. Needs only torch."""

from fairseq_entmax.mappings.base import Mapping
from fairseq_entmax.mappings.entmax import Entmax
from fairseq_entmax.mappings.functional import entmax, entmax15, softmax, sparsemax
from fairseq_entmax.mappings.general import max_omega
from fairseq_entmax.mappings.layers import PerHeadSpec, parse_layers, parse_mappings
from fairseq_entmax.mappings.losses import (
    LossParts,
    entmax15_loss,
    entmax_loss,
    entmax_loss_parts,
    sparsemax_loss,
)
from fairseq_entmax.mappings.per_head import PerHeadMapping
from fairseq_entmax.mappings.pnorm import SqPNormMax
from fairseq_entmax.mappings.registry import MAPPINGS, MappingSpec, parse_mapping, register_mapping
from fairseq_entmax.mappings.structured import fusedmax, oscarmax, sq_pnorm_max

__all__ = [
    "MAPPINGS",
    "Entmax",
    "LossParts",
    "Mapping",
    "MappingSpec",
    "PerHeadMapping",
    "PerHeadSpec",
    "SqPNormMax",
    "entmax",
    "entmax15",
    "entmax15_loss",
    "entmax_loss",
    "entmax_loss_parts",
    "fusedmax",
    "max_omega",
    "oscarmax",
    "parse_layers",
    "parse_mapping",
    "parse_mappings",
    "register_mapping",
    "softmax",
    "sparsemax",
    "sparsemax_loss",
    "sq_pnorm_max",
]
