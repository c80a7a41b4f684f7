"""How a recipe cut its text into words, seen from what lies beside the data.

A recipe that cuts text into words leaves ``text``, before, and ``tok``, behind it, beside
``data-bin``; sentence for sentence in validation.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from fairseq_entmax.analysis.tokens import MARK, SENTENCEPIECE

MOSES = "--tokenizer moses --moses-no-dash-splits --moses-no-escape"
# Sentences that are compared, and the share of them that has to be the same
_LOOKED_AT = 50
_FITS = 0.9


def words_of_recipe(
    data: Path, kind: str, language: str | None, build: Callable[[Any, str], Any]
) -> tuple[Any, str]:
    """The tokeniser that a recipe's text was cut by.

    Args:
        data: the folder with the dictionaries.
        kind: of its subwords.
        language: of the text, and of its files; None where it is not known.
        build: a tokeniser of fairseq's options.

    Returns:
        It, or None where there is none or it is not known; and what is to be said of it.
    """
    tok, text = data.parent / "tok", data.parent / "text"
    if not tok.is_dir():
        return None, ""
    if kind == SENTENCEPIECE and not _same(
        _lines(data.parent / "spm", language, _joined), _lines(tok, language)
    ):
        return None, ""  # its text was not cut into words before; these are of another preparation
    given = f"the training text was cut into words, as {tok} has it: give such words, or {MOSES}"
    languages = {"source_lang": language or "en", "target_lang": language or "en"}
    args = Namespace(
        tokenizer="moses", moses_no_dash_splits=True, moses_no_escape=True, **languages
    )
    try:
        tokenizer = build(args, "moses")
    except (ModuleNotFoundError, ValueError):
        return None, given
    before, behind = _lines(text, language, tokenizer.encode), _lines(tok, language)
    if before and behind and not _same(before, behind):
        return None, f"the training text was cut into words, as {tok} has it: give such words"
    return tokenizer, f"cut into words by {MOSES}, as {tok} was; --tokenizer space leaves them"


def _joined(line: str) -> str:
    return line.replace(" ", "").replace(MARK, " ")


def _lines(
    folder: Path, language: str | None, change: Callable[[str], str] = str.strip
) -> list[str]:
    """The first sentences of validation, in small letters, spaces made one."""
    names = [folder / f"valid.{end}" for end in (language, "input0") if end is not None]
    file = next((one for one in names if one.is_file()), None)
    if file is None:
        return []
    with file.open(encoding="utf-8", errors="replace") as lines:
        some = [change(line.strip()) for line in islice(lines, _LOOKED_AT)]
    return [" ".join(line.lower().split()) for line in some]


def _same(some: list[str], others: list[str]) -> bool:
    """Whether most sentences are the same."""
    same = sum(one == other for one, other in zip(some, others, strict=False))
    return same >= _FITS * max(1, len(some), len(others))
