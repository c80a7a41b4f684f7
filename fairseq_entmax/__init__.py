"""Adaptively sparse and prunable Transformers for fairseq.

This is the folder that ``--user-dir`` names. Importing it costs nothing and registers nothing:
fairseq, once it has imported a user directory, imports the tasks and models in it, and the models
register themselves, the criterions and the tasks. In Python, ``import fairseq_entmax.models``
does the same; :mod:`fairseq_entmax.mappings` needs torch alone.
"""

import importlib
import os
import sys

__version__ = "0.1.0"


class _UserDirectory(list[str]):
    """The places of the package's modules, which registers the models for fairseq's sake.

    Where the package was imported before, fairseq does not import the models and tasks of the
    user directory. It only looks whether the directory is in this list, which is when they are
    registered.
    """

    def __contains__(self, path: object) -> bool:
        is_here = isinstance(path, str) and os.path.realpath(path) in map(os.path.realpath, self)
        if is_here and "fairseq.models" in sys.modules:
            importlib.import_module(f"{__name__}.models")
        return is_here


__path__ = _UserDirectory(__path__)
