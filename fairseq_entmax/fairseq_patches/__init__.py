"""What is changed in fairseq, a file each: what breaks without it, and when it can be removed."""

from fairseq_entmax import compat  # noqa: F401 - which says what to install without fairseq
