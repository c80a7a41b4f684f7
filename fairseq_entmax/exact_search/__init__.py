"""fairseq's search where words have probability exactly zero, and whether it was exact.

A sparse output layer gives most words probability zero. fairseq's search keeps such hypotheses
in its beam, with a score of -inf, and fails when no other can end. :func:`search_with_zeros`
ends it there instead, and says of each sentence whether the beam held every sequence of
non-zero probability.
"""

from fairseq_entmax.exact_search.counts import SearchCounts, count_searches, reporting
from fairseq_entmax.exact_search.mended import align_with_zeros, fill_up, search_with_zeros

__all__ = [
    "SearchCounts",
    "align_with_zeros",
    "count_searches",
    "fill_up",
    "reporting",
    "search_with_zeros",
]
