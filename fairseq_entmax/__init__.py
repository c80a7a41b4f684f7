"""Adaptively sparse and prunable Transformers for fairseq.

This is the folder that ``--user-dir`` names. Importing it costs nothing and registers nothing.
Once fairseq has imported a user directory, it imports the tasks and models in it, and the models
register themselves, the criterions and the tasks. In Python, ``import fairseq_entmax.models``
does the same; :mod:`fairseq_entmax.mappings` needs only torch.
"""

import importlib
import os
import sys

__version__ = "0.1.0"


class _UserDirectory(list[str]):
    """The package's search path, which registers the models when fairseq looks into it.

    If the package was imported before, fairseq does not import the models and tasks of the user
    directory. It only checks whether the directory is in this list, and that check registers them.
    """

    def __contains__(self, path: object) -> bool:
        is_here = isinstance(path, str) and os.path.realpath(path) in map(os.path.realpath, self)
        if is_here and "fairseq.models" in sys.modules:
            importlib.import_module(f"{__name__}.models")
        return is_here


__path__ = _UserDirectory(__path__)
