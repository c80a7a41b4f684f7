"""The dictionaries that ``fairseq-preprocess`` wrote, of the languages of a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fairseq.data import Dictionary, data_utils

from fairseq_entmax.error_messages import reason

_REMEDY = "run fairseq-preprocess again"


def languages(folder: str, source: str | None, target: str | None) -> tuple[str, str] | None:
    """The languages of a folder, from the names of its files where they are not given."""
    if not (source and target):
        try:
            source, target = data_utils.infer_language_pair(folder)
        except (OSError, ValueError):
            return None
    return (source, target) if source and target else None


def check_dictionaries(folder: str, pair: Sequence[str]) -> list[Dictionary]:
    """Read ``dict.LANG.txt`` of both languages of a folder, and refuse what fairseq cannot read."""
    hint = f"give --source-lang and --target-lang as they are in the names of the files there, or {_REMEDY}"
    return [
        check_dictionary(os.path.join(folder, f"dict.{language}.txt"), hint) for language in pair
    ]


def check_dictionary(path: str, if_missing: str = _REMEDY) -> Dictionary:
    """Read a dictionary, and refuse what fairseq cannot read; ``if_missing`` says what to do."""
    if not os.path.isfile(path):
        problem = "it is no file" if os.path.exists(path) else "it is missing"
        raise ValueError(f"there is no dictionary {path}, {problem}: {if_missing}")
    try:
        return Dictionary.load(path)
    except Exception as error:  # fairseq raises plain Exception, too
        raise ValueError(
            f"the dictionary {path} cannot be read: {reason(error)}; {_REMEDY}"
        ) from None
