"""Models and architectures that are registered with fairseq. Needs fairseq."""

# First, for its message where there is no fairseq
from fairseq_entmax import compat as compat
from fairseq_entmax.models.entmax_transformer import EntmaxTransformerModel

__all__ = ["EntmaxTransformerModel"]
