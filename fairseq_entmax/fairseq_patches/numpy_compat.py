"""NumPy's ``compat``, which fairseq's data sets ask for.

Without it: sentences one by one (``--sample-break-mode eos``, ``fairseq-interactive`` of a language
model, its ``sample`` and ``score``) and bucketed batches end in an ``AttributeError`` of NumPy's.
Remove when: fairseq no longer asks for ``numpy.compat``, or NumPy below 2.4 is the last supported.
"""

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy

# fairseq's modules that ask for it
MODULES = ("fairseq.data.token_block_dataset", "fairseq.data.language_pair_dataset")


class NumPyWithCompat(ModuleType):
    """NumPy, for one module of fairseq's, with ``compat.long``, which NumPy 2.4 has no more."""

    compat = SimpleNamespace(long=int)

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)
