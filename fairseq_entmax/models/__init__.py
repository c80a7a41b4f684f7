"""Models and architectures that are registered with fairseq. Needs fairseq."""

from fairseq_entmax.models.entmax_transformer import EntmaxTransformerModel

__all__ = ["EntmaxTransformerModel"]
