"""Models and architectures that are registered with fairseq. Needs fairseq."""

# First, for its message where there is no fairseq
from fairseq_entmax import compat as compat

# fairseq imports the models of a user directory, and not its criterions
from fairseq_entmax import criterions as criterions
from fairseq_entmax.models.copy_transformer import EntmaxCopyTransformerModel
from fairseq_entmax.models.entmax_transformer import EntmaxTransformerModel

__all__ = ["EntmaxCopyTransformerModel", "EntmaxTransformerModel"]
