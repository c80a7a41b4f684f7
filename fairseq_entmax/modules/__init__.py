"""Parts of the models: attention, its gates, and the layers around it. Needs fairseq."""

# First, for its message where there is no fairseq
from fairseq_entmax import compat as compat
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.modules.attention import MultiheadAttention, mark_future_mask
from fairseq_entmax.modules.gates import HardConcreteGate
from fairseq_entmax.modules.layers import EntmaxDecoderLayer, EntmaxEncoderLayer, Heads
from fairseq_entmax.modules.pruning_state import PruningState

__all__ = [
    "ATTENTIONS",
    "EntmaxDecoderLayer",
    "EntmaxEncoderLayer",
    "HardConcreteGate",
    "Heads",
    "MultiheadAttention",
    "PruningState",
    "mark_future_mask",
]
