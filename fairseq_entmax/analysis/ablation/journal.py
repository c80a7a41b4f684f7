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
import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from fairseq_entmax.analysis.ablation.removal import SentenceScores

FORMAT, VERSION = "fairseq-entmax-removals", 1


class Journal:
    """The finished removals, in a file that one process at a time holds open.

    A line that a stop left half written is dropped.

    Args:
        path: the file; made if it is not there.
        settings: nested, of JSON's types: what the scores depend on.
        overwrite: forget what the file holds.

    Attributes:
        finished: names of the heads removed, to the scores.

    Raises:
        ValueError: the file is of other settings, or is no such file.
        BlockingIOError: another process holds it.
    """

    def __init__(self, path: str, settings: dict[str, Any], overwrite: bool = False) -> None:
        self._path = path
        self.finished: dict[tuple[str, ...], SentenceScores] = {}
        self._file = open(path, "a+b")  # noqa: SIM115 - closed by __exit__
        try:
            self._hold()
            if overwrite:
                self._file.truncate(0)
            header = {"format": FORMAT, "version": VERSION, "settings": settings}
            found = self._read()
            if not found:
                self._append(header)
            else:
                self._check(found[0], header)
            for line in found[1:]:
                scores = SentenceScores(line["nll"], line["translations"])
                self.finished[tuple(line["heads"])] = scores
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, heads: tuple[str, ...], scores: SentenceScores) -> None:
        """Keep the scores of a removal; they are on the disk when this returns."""
        self._append({"heads": list(heads), "nll": scores.nll, "translations": scores.translations})
        self.finished[heads] = scores

    def _hold(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"another process is writing to {self._path}: wait for it, or choose another "
                f"--output"
            ) from None

    def _append(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> list[dict[str, Any]]:
        """The whole lines; the file ends with the last of them."""
        self._file.seek(0)
        lines: list[dict[str, Any]] = []
        size = 0
        for text in self._file:
            if not text.endswith(b"\n"):
                self._file.truncate(size)
                break
            try:
                lines.append(json.loads(text))
            except ValueError as error:
                raise ValueError(
                    f"line {len(lines) + 1} of {self._path} is damaged ({error}): start anew with "
                    f"--overwrite, or choose another --output"
                ) from None
            size += len(text)
        self._file.seek(0, os.SEEK_END)
        return lines

    def _check(self, found: Any, wanted: dict[str, Any]) -> None:
        kind = (found.get("format"), found.get("version")) if isinstance(found, dict) else None
        if kind != (FORMAT, VERSION):
            raise ValueError(
                f"{self._path} was not written by this version of the command: choose another "
                f"--output"
            )
        before, now = dict(_flat(found["settings"])), dict(_flat(wanted["settings"]))
        changed = [
            f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        if changed:
            raise ValueError(
                f"{self._path} has scores with other settings: {'; '.join(changed)}; choose "
                f"another --output, or start anew with --overwrite"
            )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
