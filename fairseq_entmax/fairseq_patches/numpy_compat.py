"""Provides NumPy's ``compat``, which fairseq's data sets of texts use.

Without it: single sentences (``--sample-break-mode eos``, ``fairseq-interactive`` with a language
model, its ``sample`` and ``score``) raise an ``AttributeError`` of NumPy's.
Remove when: fairseq no longer uses ``numpy.compat``, or only NumPy below 2.4 is supported.
"""

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy

# fairseq's module that uses it, besides its bucketed batches, which need an older NumPy anyway
MODULES = ("fairseq.data.token_block_dataset",)


class NumPyWithCompat(ModuleType):
    """A stand-in for NumPy in one module, with ``compat.long``, which NumPy 2.4 lacks."""

    compat = SimpleNamespace(long=int)

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)
