"""Attention modules, head gates, and the functions that put them into a model. Needs fairseq."""

# Imported first: it raises a helpful error if fairseq is missing
from fairseq_entmax import compat as compat
from fairseq_entmax.attention.base import Heads
from fairseq_entmax.attention.gates import GATES, Gate, HardConcreteGate, register_gate
from fairseq_entmax.attention.heads import attention_modules, every_attention, give_heads
from fairseq_entmax.attention.masks import mark_future_mask
from fairseq_entmax.attention.multihead import MultiheadAttention
from fairseq_entmax.attention.pruning_state import PruningState
from fairseq_entmax.attention.scripting import scriptable
from fairseq_entmax.attention.subset_gate import SubsetGate

__all__ = [
    "GATES",
    "Gate",
    "HardConcreteGate",
    "Heads",
    "MultiheadAttention",
    "PruningState",
    "SubsetGate",
    "attention_modules",
    "every_attention",
    "give_heads",
    "mark_future_mask",
    "register_gate",
    "scriptable",
]
