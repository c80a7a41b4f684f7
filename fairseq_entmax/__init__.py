"""Adaptively sparse and prunable Transformers for fairseq.

This is the folder that ``--user-dir`` names. Where fairseq is installed, importing it
registers the models and criterions; without fairseq, :mod:`fairseq_entmax.mappings` works on
its own.
"""

from importlib.util import find_spec

__version__ = "0.1.0"

if find_spec("fairseq") is not None:
    from fairseq_entmax import criterions as criterions
    from fairseq_entmax import models as models
