"""Parts of the models: attention and the layers around it. Needs fairseq."""

from fairseq_entmax.modules.attention import ATTENTIONS, MultiheadAttention
from fairseq_entmax.modules.layers import EntmaxDecoderLayer, EntmaxEncoderLayer

__all__ = ["ATTENTIONS", "EntmaxDecoderLayer", "EntmaxEncoderLayer", "MultiheadAttention"]
