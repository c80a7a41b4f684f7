"""Models and architectures, which register themselves with fairseq. Needs fairseq."""

# Imported first, as its error says what to install if fairseq is missing
from fairseq_entmax import compat as compat

# fairseq imports the models and tasks of a user directory, but not its criterions. If the package
# was imported before, only the models are imported, and the tasks only through them
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
