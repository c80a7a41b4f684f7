"""Segmentation of a text into the tokens that a model reads, as its training text was segmented.

fairseq's options say how. Without an option for subwords, the subword model is taken from the data
folder, or from ``spm`` or ``bpe`` beside it. A text with subword marks counts as segmented."""

from __future__ import annotations

import contextlib
import io
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.data import encoders
from torch import Tensor

from fairseq_entmax.analysis.data.tokens import MARK, MASK, SENTENCEPIECE, SUBWORD_NMT, subword_kind
from fairseq_entmax.error_messages import reason
from fairseq_entmax.models.copy_transformer import markers_of
from fairseq_entmax.summaries.oov import Vocabulary

# For each kind of subwords: the mark, the option for the model's file, and usual names of files
_WAYS = {
    SENTENCEPIECE: (MARK, "sentencepiece_model", ("*.model",)),
    SUBWORD_NMT: ("@@", "bpe_codes", ("codes.{language}", "codes")),
}


@dataclass
class Segmented:
    """A segmented text: its tokens with the end of sentence, and the word behind each marker."""

    tokens: Tensor
    markers: dict[str, str]
    notes: list[str]


class Segmentation:
    """Segments the texts of one side, source or target."""

    def __init__(
        self,
        dictionary: Any,
        tokenizer: Any = None,
        bpe: Any = None,
        data: str | None = None,
        language: str | None = None,
        lower: bool = False,
    ) -> None:
        self._dictionary, self._tokenizer, self._bpe = dictionary, tokenizer, bpe
        self._kind, self._is_lower = subword_kind(dictionary), lower
        self._notes: list[str] = []
        if bpe is None and data is not None and self._kind in _WAYS:
            self._find(Path(data), str(language))

    def __call__(self, text: str, markers_there: Mapping[str, str] | None = None) -> Segmented:
        """Segment a text; ``markers_there`` maps words to their markers on the other side."""
        pieces, notes = self._cut(text)
        if not pieces:
            raise ValueError("a text is empty: give a sentence")
        pieces = [(markers_there or {}).get(piece, piece) for piece in pieces]
        dictionary, markers = self._dictionary, {}
        if number := markers_of(dictionary):
            vocabulary = Vocabulary(frozenset(dictionary.symbols), number)
            marked = vocabulary.marked(pieces, vocabulary.unknown(pieces))
            markers = {new: old for new, old in zip(marked, pieces, strict=True) if new != old}
            pieces = marked
            notes = [", ".join(f"{new} stands for {old}" for new, old in markers.items()), *notes]
        unk = dictionary.unk()
        lost = [one for one in pieces if dictionary.index(one) == unk and one != dictionary[unk]]
        if lost:
            shown = ", ".join(list(dict.fromkeys(lost))[:10])
            notes = [f"not in the dictionary, so read as <unk>: {shown}", *notes]
        tokens: Tensor = dictionary.encode_line(
            " ".join(pieces), line_tokenizer=str.split, add_if_not_exist=False
        )
        return Segmented(tokens.long(), markers, [note for note in notes if note])

    def _cut(self, text: str) -> tuple[list[str], list[str]]:
        """Return the pieces of a text, and notes on how they were made."""
        mark, option, _ = _WAYS.get(self._kind, ("", "", ()))
        if mark and mark in text:
            note = "has subword marks, so it is taken as already segmented"
            return (text.lower() if self._is_lower else text).split(), [note]
        if mark and self._bpe is None and text.strip():
            raise ValueError(
                f"the dictionary has subwords, but it is unknown how to segment a text into them: "
                f"give --bpe {self._kind} --{option.replace('_', '-')} FILE as in training, or a text "
                f"that is already segmented"
            )
        parts = text.split(MASK) if MASK in self._dictionary else [text]
        return f" {MASK} ".join(map(self._encoded, parts)).split(), self._notes

    def _encoded(self, text: str) -> str:
        text = text.rstrip()
        if self._tokenizer is not None:
            text = self._tokenizer.encode(text)
        # After the tokeniser, which finds the start of a sentence by its capital
        text = text.lower() if self._is_lower else text
        return text if self._bpe is None else str(self._bpe.encode(text))

    def _find(self, data: Path, language: str) -> None:
        """Use the subword model found in or beside the data folder, if there is one."""
        _, option, names = _WAYS[self._kind]
        for place in (data, data.parent / "spm", data.parent / "bpe"):
            for name in names:
                for file in sorted(place.glob(name.format(language=language))):
                    args = Namespace(bpe=self._kind, **{option: str(file)})
                    self._bpe = built(args, "bpe")
                    how = f"--bpe {self._kind} --{option.replace('_', '-')} {file}"
                    self._notes = [f"segmented by {how}"]
                    return


def built(args: Any, part: str) -> Any:
    """Build fairseq's ``bpe`` or ``tokenizer`` from options; None if they name none."""
    name = getattr(args, part)
    if name is None:
        return None
    option = _WAYS[name][1] if name in _WAYS else ""
    path = getattr(args, option, None)
    if option and not Path(str(path)).is_file():
        there = f": there is no file {path}" if path not in (None, "???") else ""
        raise ValueError(f"--bpe {name} needs --{option.replace('_', '-')} FILE{there}")
    build = encoders.build_bpe if part == "bpe" else encoders.build_tokenizer
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):  # sacremoses and others print paths
            return build(args)
    except ImportError as error:
        raise ModuleNotFoundError(f"--{part} {name}: {error}", name=error.name) from error
    except (Exception, SystemExit) as error:  # whatever the packages raise for a damaged file
        file = f" with {path}" if path else ""
        # subword-nmt prints why, and exits
        why = reason(ValueError(printed.getvalue()) if isinstance(error, SystemExit) else error)
        raise ValueError(f"--{part} {name} cannot be used{file}: {why}") from error
