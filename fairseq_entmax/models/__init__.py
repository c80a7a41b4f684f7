"""Models and architectures that are registered with fairseq. Needs fairseq."""

# First, for its message where there is no fairseq
from fairseq_entmax import compat as compat

# fairseq imports the models and tasks of a user directory, and not its criterions; and where the
# package had been imported before, of the tasks only what the models import
from fairseq_entmax import criterions as criterions
from fairseq_entmax import tasks as tasks
from fairseq_entmax.models.bart import EntmaxBARTModel
from fairseq_entmax.models.copy_transformer import EntmaxCopyTransformerModel
from fairseq_entmax.models.entmax_transformer import EntmaxTransformerModel
from fairseq_entmax.models.language_model import EntmaxTransformerLanguageModel
from fairseq_entmax.models.roberta import EntmaxRobertaModel

__all__ = [
    "EntmaxBARTModel",
    "EntmaxCopyTransformerModel",
    "EntmaxRobertaModel",
    "EntmaxTransformerLanguageModel",
    "EntmaxTransformerModel",
]
