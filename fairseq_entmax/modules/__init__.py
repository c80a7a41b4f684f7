"""Parts of the models: attention and the layers around it. Needs fairseq."""

# First, for its message where there is no fairseq
from fairseq_entmax import compat as compat
from fairseq_entmax.modules.attention import ATTENTIONS, MultiheadAttention
from fairseq_entmax.modules.layers import EntmaxDecoderLayer, EntmaxEncoderLayer

__all__ = ["ATTENTIONS", "EntmaxDecoderLayer", "EntmaxEncoderLayer", "MultiheadAttention"]
