"""The attention on sentences of one's own: ``fairseq-entmax look``, and ``look`` in Python.

Not called ``look``, so that ``fairseq_entmax.analysis.look`` is the function alone."""

USAGE = 'fairseq-entmax look CHECKPOINT --text "…" [options]'
