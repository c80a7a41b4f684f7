"""Attention on the user's own sentences: ``fairseq-entmax look``, and ``look`` in Python.

The package is not called ``look``, because ``fairseq_entmax.analysis.look`` is the function."""

USAGE = 'fairseq-entmax look CHECKPOINT --text "…" [options]'
