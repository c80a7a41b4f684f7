"""Tasks, which register themselves with fairseq. Needs fairseq."""

# Imported first, as its error says what to install if fairseq is missing
from fairseq_entmax import compat as compat
from fairseq_entmax.tasks.summarization import EntmaxSummarizationTask

__all__ = ["EntmaxSummarizationTask"]
