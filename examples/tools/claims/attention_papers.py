"""Niculae and Blondel 2017 and Baan et al. 2019: importing this registers their claims."""

from __future__ import annotations

# In the order of the papers, which is that of the table
# isort: off
from claims import niculae_blondel, baan_removal, baan_sparse

# isort: on

__all__ = ["baan_removal", "baan_sparse", "niculae_blondel"]
