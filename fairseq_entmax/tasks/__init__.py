"""Tasks that are registered with fairseq. Needs fairseq."""

# First, for its message where there is no fairseq
from fairseq_entmax import compat as compat
from fairseq_entmax.tasks.summarization import EntmaxSummarizationTask

__all__ = ["EntmaxSummarizationTask"]
