"""Changes to fairseq, one per file, which says what breaks without it and when to remove it."""

from fairseq_entmax import compat  # noqa: F401 - its error says what to install
