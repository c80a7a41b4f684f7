"""A file that keeps each finished step of a long computation, so that it can go on after a stop.

The file has one JSON object a line. The first says what the steps belong to:
``{"format": "fairseq-entmax-removals", "version": 1, "settings": {…}}``; each other one is a
removal: ``{"heads": ["encoder-self:0.1"], "nll": [nats a sentence], "translations": [text a
sentence]}``, where ``heads`` is empty for the unchanged model, and what was not asked for is
null.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator
from collections.abc import Mapping as Dictionary
from typing import Any

from fairseq_entmax.analysis.ablation.removal import Names, SentenceScores
from fairseq_entmax.analysis.arguments import LOSS, OF_TEXT
from fairseq_entmax.head_names import parse_heads

FORMAT, VERSION = "fairseq-entmax-removals", 1
# How every such file begins, whatever its version
_BEGIN = f'{{"format": "{FORMAT}", '.encode()
MOST_CHANGES = 8


class Journal:
    """The finished removals, in a file that one process at a time holds open.

    A line that a stop left half written is dropped.

    Args:
        path: the file; made if it is not there.
        settings: nested, of JSON's types: what the scores depend on; ``scores`` among them says
            which there are.
        overwrite: forget what the file holds.
        sentences: how many are scored: each line must have so many of each of the scores. None
            does not look.

    Attributes:
        finished: names of the heads removed, to the scores.

    Raises:
        ValueError: the file is of other settings, is damaged, or is no such file; names the
            line. It is left as it is.
        OSError: it cannot be read or written.
        BlockingIOError: another process holds it.
    """

    def __init__(
        self,
        path: str,
        settings: dict[str, Any],
        overwrite: bool = False,
        sentences: int | None = None,
    ) -> None:
        self._path = path
        self._sentences = sentences
        self._scores = settings.get("scores")
        self.finished: dict[Names, SentenceScores] = {}
        if os.path.lexists(path) and not os.path.isfile(path):
            raise ValueError(f"{path} is no ordinary file: choose another --output")
        self._file = open(path, "a+b")  # noqa: SIM115 - closed by __exit__
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BlockingIOError(
                    f"another process is writing to {path}: wait for it, or choose another --output"
                ) from None
            if overwrite:
                self._file.truncate(0)
            header = {"format": FORMAT, "version": VERSION, "settings": settings}
            lines, size = self._read()
            if lines:
                self._check(lines[0], header)
            for number, line in enumerate(lines[1:], start=2):
                heads, scores = self._removal(number, line)
                if self.finished.setdefault(heads, scores) != scores:
                    raise self._damaged(number, f"other scores of {', '.join(heads)} before")
            self._file.truncate(size)
            self._file.seek(0, os.SEEK_END)
            if not lines:
                self._append(header)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, heads: Names, scores: SentenceScores) -> None:
        """Keep the scores of a removal; they are on the disk when this returns.

        Raises:
            ValueError: a loss is no finite number.
            OSError: the file cannot be written.
        """
        for number, loss in enumerate(scores.nll or ()):
            if not math.isfinite(loss):
                raise ValueError(
                    f"without {', '.join(heads) or 'any removal'} the loss of the sentence in "
                    f"place {number} is {loss}, which nothing can be compared with: score in "
                    f"float32, without --fp16 and --bf16, or leave these heads out of --heads"
                )
        self._append({"heads": list(heads), "nll": scores.nll, "translations": scores.translations})
        self.finished[heads] = scores

    def _append(self, line: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OSError(f"cannot write to {self._path}: {error}") from error

    def _read(self) -> tuple[list[Any], int]:
        """The whole lines, and where the last of them ends."""
        self._file.seek(0)
        lines: list[Any] = []
        size = 0
        for text in self._file:
            if not lines and text[: len(_BEGIN)] != _BEGIN[: len(text)]:
                raise self._foreign()
            if not text.endswith(b"\n"):
                break
            try:
                lines.append(json.loads(text))
            except (ValueError, RecursionError) as error:
                raise self._damaged(len(lines) + 1, str(error)) from None
            size += len(text)
        return lines, size

    def _removal(self, number: int, line: Any) -> tuple[Names, SentenceScores]:
        try:
            heads, nll, translations = line["heads"], line["nll"], line["translations"]
            if not _is_list(heads, str) or any(len(parse_heads(name)) != 1 for name in heads):
                raise ValueError("'heads' is no list of heads")
            if not (nll is None or _is_list(nll, float)):
                raise ValueError("'nll' is no list of numbers")
            if not (translations is None or _is_list(translations, str)):
                raise ValueError("'translations' is no list of texts")
        except (KeyError, TypeError):
            reason = "no object with 'heads', 'nll' and 'translations'"
            raise self._damaged(number, reason) from None
        except ValueError as error:
            raise self._damaged(number, str(error)) from None
        for name, scores, values in (
            ("a loss", {LOSS}, nll),
            ("a translation", OF_TEXT, translations),
        ):
            wanted = None if scores.isdisjoint(self._scores or ()) else self._sentences
            count = None if values is None else len(values)
            if self._sentences and count != wanted:
                raise self._damaged(number, f"{count} sentences with {name}, not {wanted}")
        return tuple(heads), SentenceScores(nll, translations)

    def _check(self, header: Any, wanted: dict[str, Any]) -> None:
        kind = (header.get("format"), header.get("version")) if isinstance(header, dict) else None
        if kind != (FORMAT, VERSION):
            raise self._foreign()
        settings = header.get("settings")
        if not isinstance(settings, dict):
            raise self._damaged(1, "no settings")
        before, now = dict(_flat(settings)), dict(_flat(wanted["settings"]))
        changed = [
            f"{name:.60} was {_short(before.get(name))} and is {_short(now.get(name))}"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        if changed:
            more = f"; and {len(changed) - MOST_CHANGES} more" * (len(changed) > MOST_CHANGES)
            raise ValueError(
                f"{self._path} has scores with other settings: "
                f"{'; '.join(changed[:MOST_CHANGES])}{more}; choose another --output, or start "
                f"anew with --overwrite"
            )

    def _damaged(self, number: int, reason: str) -> ValueError:
        return ValueError(
            f"line {number} of {self._path} is damaged ({reason:.200}): start anew with "
            f"--overwrite, or choose another --output"
        )

    def _foreign(self) -> ValueError:
        return ValueError(
            f"{self._path} was not written by this version of the command: choose another --output"
        )


def _is_list(values: Any, kind: type) -> bool:
    """Whether it is a list of texts, or of finite numbers."""
    is_list = isinstance(values, list) and all(isinstance(value, kind) for value in values)
    return is_list and (kind is str or all(map(math.isfinite, values)))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _flat(settings: Dictionary[str, Any]) -> Iterator[tuple[str, Any]]:
    """Nested settings as names with dots between them; without recursion, as files may be deep."""
    left: list[tuple[str, Any]] = list(settings.items())
    while left:
        name, value = left.pop()
        if isinstance(value, Dictionary):
            left += [(f"{name}.{key}", inner) for key, inner in value.items()]
        else:
            yield name, value
