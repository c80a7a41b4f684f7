"""Voita et al. 2019, *Analyzing Multi-Head Self-Attention*: importing this registers its claims.

Those on what heads do (sections 4 and 5), then those on pruning (section 6), each for softmax and
for learned α.
"""

from __future__ import annotations

# In the order of the paper, which is that of the table
# isort: off
from claims import voita_relevance, voita_roles, voita_survivors, voita_pruning

# isort: on

__all__ = ["voita_pruning", "voita_relevance", "voita_roles", "voita_survivors"]
