"""Silences warnings of libraries about themselves, which a user of a command cannot act on.

A warning that fairseq calls torch by an old name, or that hydra will one day read fairseq's
settings in another way, is for fairseq's developers. What a user can act on is not silenced:
sentences left out for their length, a NaN loss, sacreBLEU's advice. Filters are added *after* the
existing ones, so ``-W`` and ``PYTHONWARNINGS`` win.
"""

from __future__ import annotations

import logging
import os
import warnings

# Categories and modules whose warnings are all silenced
MODULES: tuple[tuple[type[Warning], str], ...] = (
    (FutureWarning, r"(fairseq(_cli)?|thinc|spacy)(\..*)?$"),
    (DeprecationWarning, r"fairseq(_cli)?(\..*)?$"),
)
# How other warnings begin, and their modules: libraries, or any module where hydra warns about the
# line that called it
MESSAGES = (
    (r"pkg_resources is deprecated", r"fairseq"),
    (r"hydra\.experimental\.(initialize|compose)\(\) is no longer", r"hydra\."),
    (r"\s*The version_base parameter is not specified", ""),
    (r'\s*version_base="1\.\d" selects Hydra', ""),
    (r"In 'config': Usage of deprecated keyword in package header", r"hydra\."),
    (r"\s*'config' is validated against ConfigStore schema with the same name", ""),
    (r"\s*The strict flag in the compose API is deprecated", r"hydra\."),
    (r"'pin_memory' argument is set as true but", r"torch\."),
    (r"The PyTorch API of nested tensors is in prototype stage", r"(torch|fairseq)\."),
    (r"enable_nested_tensor is True, but", r"(torch|fairseq)\."),
    (r"Support for mismatched (src_)?key_padding_mask and", r"torch\.nn\."),
    (r"`torch\.jit\.\w+` is (deprecated|not supported)", r"(torch|fairseq)\."),
    (r"\s*This overload of \w+ is deprecated", r"fairseq"),
    (r"__floordiv__ is deprecated", r"fairseq"),
    (r".*received a mask with dtype torch\.uint8", r"fairseq"),
    (r"TypedStorage is deprecated", r"(torch|fairseq)\."),
    (r"The given NumPy array is not writ[e]?able", r"fairseq"),
)
# Loggers whose messages below warnings are nothing that a user could act on
LOGGERS = (
    *("fairseq.tasks.text_to_speech", "fairseq.tasks.fairseq_task", "fairseq.models.fairseq_model"),
    "hydra.core.utils",
)


def hush() -> None:
    """Add the filters, once, however often it is called. Imports only the standard library."""
    for category, module in MODULES:
        warnings.filterwarnings("ignore", category=category, module=module, append=True)
    for message, module in MESSAGES:
        for kind in (UserWarning, FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", message, kind, module, append=True)
    if os.environ.get("LOGLEVEL", "").upper() == "DEBUG":
        return
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
