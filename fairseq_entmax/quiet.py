"""Hushes what libraries say about themselves, which nobody who runs a command can mend.

A warning that fairseq calls torch by an old name, or that hydra will read fairseq's settings in
another way one day, is for fairseq's developers. Each entry below names such a warning by its
message, its category and the module it is of, as far as that tells it from those of a user's own
code. What a user can act on is not here: sentences left out for their length, a loss that is no
number, sacreBLEU's advice.

Filters are added *behind* those that are there, so ``-W`` and ``PYTHONWARNINGS`` win. With the
environment's ``LOGLEVEL`` at DEBUG the log is left as it is, too.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import NamedTuple


class Hushed(NamedTuple):
    """Warnings that say nothing to a user.

    Attributes:
        message: how they begin, a regular expression.
        module: of what they are, a regular expression of its whole name; '' is any.
        category: of the warnings.
    """

    message: str
    module: str
    category: type[Warning]


# Modules of fairseq's: what Python, torch and NumPy call old in them is fairseq's to change
FAIRSEQ = r"fairseq(_cli)?(\..*)?$"
# And torch, which is called by fairseq to compile
COMPILED = r"(torch|fairseq)\."
# hydra speaks of the line that called fairseq's command, of its own, or of none
ANYWHERE = ""

WARNINGS = (
    Hushed("", FAIRSEQ, FutureWarning),
    Hushed("", FAIRSEQ, DeprecationWarning),
    Hushed(r"pkg_resources is deprecated", FAIRSEQ, UserWarning),
    # Of how fairseq reads its own settings by hydra; of a user's hydra it would name another file
    Hushed(r"hydra\.experimental\.(initialize|compose)\(\) is no longer", r"hydra\.", UserWarning),
    # Which line hydra says it of differs between its releases
    Hushed(r"\s*The version_base parameter is not specified", ANYWHERE, UserWarning),
    Hushed(r'\s*version_base="1\.\d" selects Hydra', ANYWHERE, UserWarning),
    Hushed(
        r"In 'config': Usage of deprecated keyword in package header '# @package _group_'",
        r"hydra\.",
        UserWarning,
    ),
    Hushed(
        r"\s*'config' is validated against ConfigStore schema with the same name",
        ANYWHERE,
        UserWarning,
    ),
    Hushed(r"\s*The strict flag in the compose API is deprecated", r"hydra\.", UserWarning),
    # fairseq asks for pinned memory whether there is a GPU or not
    Hushed(r"'pin_memory' argument is set as true but", r"torch\.", UserWarning),
    # Of fairseq's encoder and of its optimisers
    Hushed(
        r"The PyTorch API of nested tensors is in prototype stage",
        r"(torch|fairseq)\.",
        UserWarning,
    ),
    # Of the decoder of fairseq's own transformer, which hides padding and what comes later apart
    Hushed(
        r"Support for mismatched (src_)?key_padding_mask and (attn_|src_)?mask is deprecated",
        r"torch\.nn\.",
        UserWarning,
    ),
    # torch says it of whoever calls it, or of its own file
    Hushed(r"`torch\.jit\.\w+` is (deprecated|not supported)", COMPILED, FutureWarning),
    Hushed(r"`torch\.jit\.\w+` is (deprecated|not supported)", COMPILED, DeprecationWarning),
    Hushed(r"enable_nested_tensor is True, but", r"(torch|fairseq)\.", UserWarning),
    Hushed(r"\s*This overload of \w+ is deprecated", FAIRSEQ, UserWarning),
    Hushed(r"__floordiv__ is deprecated", FAIRSEQ, UserWarning),
    Hushed(r".*received a mask with dtype torch\.uint8", FAIRSEQ, UserWarning),
    Hushed(r"TypedStorage is deprecated", r"(torch|fairseq)\.", UserWarning),
    Hushed(r"The given NumPy array is not writ[e]?able", FAIRSEQ, UserWarning),
    # spaCy's engine, which calls torch by old names
    Hushed("", r"(thinc|spacy)(\..*)?$", FutureWarning),
)
# Loggers, with how those of their lines begin that are hushed, below the level of warnings
LOGGERS = {
    "fairseq.tasks.text_to_speech": "Please install tensorboardX",
    "hydra.core.utils": "Setting JobRuntime:",
}


class _Filter(logging.Filter):
    """Keeps a line from the log that begins with a text and is no warning."""

    def __init__(self, beginning: str) -> None:
        super().__init__()
        self.beginning = beginning

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is logged."""
        is_hushed = record.levelno < logging.WARNING
        return not (is_hushed and record.getMessage().startswith(self.beginning))


def hush() -> None:
    """Add the filters; once, however often it is called. Imports nothing but Python's own."""
    for message, module, category in WARNINGS:
        warnings.filterwarnings(
            "ignore", message=message, category=category, module=module, append=True
        )
    if os.environ.get("LOGLEVEL", "").upper() == "DEBUG":
        return
    for name, beginning in LOGGERS.items():
        logger = logging.getLogger(name)
        if not any(isinstance(each, _Filter) for each in logger.filters):
            logger.addFilter(_Filter(beginning))
