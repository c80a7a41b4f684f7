"""A file of finished removals, from which an interrupted ablation resumes.

Each line is a JSON object. The first holds the settings; every other one is a removal with its
``heads`` (none for the unchanged model), ``nll`` and ``translations``."""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any

from fairseq_entmax.analysis.ablation.removal import Names, SentenceScores

FORMAT, VERSION = "fairseq-entmax-removals", 1
# The start of every such file
_BEGIN = f'{{"format": "{FORMAT}", '.encode()
_NOT_ITS_LINE = (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError)


class Journal:
    """Finished removals (names of heads -> scores), in a file that one process at a time locks."""

    def __init__(self, path: str, settings: dict[str, Any], overwrite: bool = False) -> None:
        self._path = path
        self.finished: dict[Names, SentenceScores] = {}
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
            self._read({"format": FORMAT, "version": VERSION, "settings": settings})
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, heads: Names, scores: SentenceScores) -> None:
        """Store the scores of a removal; they are on disk when this returns."""
        self._append({"heads": list(heads), "nll": scores.nll, "translations": scores.translations})
        self.finished[heads] = scores

    def _append(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, header: dict[str, Any]) -> None:
        """Read what was stored, and cut off an incomplete last line."""
        self._file.seek(0)
        size = 0
        foreign = ValueError(
            f"{self._path} was not written by this version of the command: choose another --output"
        )
        for number, text in enumerate(self._file, start=1):
            if number == 1 and text[: len(_BEGIN)] != _BEGIN[: len(text)]:
                raise foreign
            if not text.endswith(b"\n"):
                break
            try:
                line = json.loads(text)
                if number > 1:
                    scores = SentenceScores(line["nll"], line["translations"])
                    self.finished[tuple(line["heads"])] = scores
                elif line["version"] != VERSION:
                    raise foreign
                else:
                    self._check_settings(line["settings"], header["settings"])
            except _NOT_ITS_LINE as error:
                raise ValueError(
                    f"line {number} of {self._path} is damaged ({error}): start again with "
                    f"--overwrite, or choose another --output"
                ) from None
            size += len(text)
        self._file.truncate(size)
        if not size:
            self._append(header)

    def _check_settings(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        changed = [
            f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        if changed:
            raise ValueError(
                f"{self._path} has scores with other settings: {'; '.join(changed)}; choose "
                f"another --output, or start again with --overwrite"
            )
