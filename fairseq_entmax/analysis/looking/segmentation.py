"""How a text becomes the tokens that a model reads: cut as its training text was.

What the user says is done. Where nothing is said, the subword model is looked for where recipes
leave it: in the folder of the data, and in ``spm`` or ``bpe`` beside it. It is taken only if its
pieces are those of the dictionary. A text that is cut already, with the marks of subwords in it, is
left as it is. Capitals become small letters where the dictionary has none.
"""

from __future__ import annotations

import contextlib
import io
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq.data import encoders
from torch import Tensor

from fairseq_entmax.analysis.looking.recipes import words_of_recipe
from fairseq_entmax.analysis.tokens import MARK, SENTENCEPIECE, SUBWORD_NMT, subword_kind
from fairseq_entmax.models.copy_transformer import markers_of
from fairseq_entmax.reasons import reason
from fairseq_entmax.summaries.oov import Vocabulary

_CODES = ("codes", "code", "bpecodes", "bpe.codes")
# Of the dictionary's pieces, how many a model that was found must have
_FITS = 0.95
_HOW = {
    SENTENCEPIECE: "--bpe sentencepiece --sentencepiece-model FILE",
    SUBWORD_NMT: "--bpe subword_nmt --bpe-codes FILE",
}
_MARKS = {SENTENCEPIECE: MARK, SUBWORD_NMT: "@@"}

Cut = Callable[[str], str]


@dataclass
class Segmented:
    """A text as a model reads it.

    Attributes:
        tokens: ``(tokens,)`` int64, with the end of the sentence.
        unknown: the pieces that the dictionary lacks, which are read as ``<unk>``.
        markers: a marker such as ``<unk-0>`` to the word that it stands for.
        notes: how it was cut, where that was found out, and whether it was lower-cased.
    """

    tokens: Tensor
    unknown: list[str]
    markers: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Segmentation:
    """Cuts the texts of one side.

    Args:
        dictionary: fairseq's, of that side.
        tokenizer, bpe: of fairseq; None where the text is not cut so.
        folder: with the data, to look for a subword model by; None looks for none.
        language: of that side, for merges that are of one language.
        lower: whether texts are lower-cased; None does so where the dictionary has small letters
            and no capital.

    Attributes:
        tokenizer: given or found out; None where the text is not cut into words.
    """

    def __init__(
        self,
        dictionary: Any,
        tokenizer: Any = None,
        bpe: Any = None,
        folder: str | None = None,
        language: str | None = None,
        lower: bool | None = None,
    ) -> None:
        self._dictionary = dictionary
        self.tokenizer, self._bpe = tokenizer, bpe
        self._kind = subword_kind(dictionary)
        self._folder, self._language = folder, language
        self._is_lower = _has_no_capitals(dictionary) if lower is None else lower
        self._lower_is_found = lower is None
        self._notes: list[str] = []
        if tokenizer is None and folder is not None:
            self.tokenizer, said = words_of_recipe(Path(folder), self._kind, language, built)
            self._notes += [said] if said else []
        if bpe is None and folder is not None and self._kind in _HOW:
            self._bpe = self._found()

    def __call__(self, text: str, markers_there: Mapping[str, str] | None = None) -> Segmented:
        """Cut a text.

        Args:
            text: as it would be written.
            markers_there: pieces to the markers that stand for them in another text.

        Raises:
            ValueError: it is empty, or has to be cut and nothing says how.
        """
        pieces, notes = self._cut(text) if text.strip() else ([], [])
        if not pieces:
            raise ValueError("a text is empty: give a sentence")
        pieces = [(markers_there or {}).get(piece, piece) for piece in pieces]
        dictionary, markers = self._dictionary, {}
        if number := markers_of(dictionary):
            vocabulary = Vocabulary(frozenset(dictionary.symbols), number)
            unknown = vocabulary.unknown(pieces)
            marked = vocabulary.marked(pieces, unknown)
            markers = {new: old for new, old in zip(marked, pieces, strict=True) if new != old}
            pieces = marked
        unk = dictionary.unk()
        lost = [one for one in pieces if dictionary.index(one) == unk and one != dictionary[unk]]
        line = " ".join(pieces)
        tokens: Tensor = dictionary.encode_line(
            line, line_tokenizer=str.split, append_eos=True, add_if_not_exist=False
        )
        return Segmented(tokens.long(), list(dict.fromkeys(lost)), markers, notes)

    def _cut(self, text: str) -> tuple[list[str], list[str]]:
        """The pieces of a text, and what is to be said of how they came about."""
        mark = _MARKS.get(self._kind)
        small = self._lowered(text)
        how = []
        if small != text:
            found = ", as the dictionary has no capital letter; --no-lower leaves capitals"
            how.append("lower-cased" + found * self._lower_is_found)
        if self._is_cut(small):
            return small.split(), [*how, "taken as cut already, by the marks of subwords in it"]
        if self.tokenizer is not None:
            text = self.tokenizer.encode(text)
        # Behind the tokeniser, whose capitals tell it where a sentence begins
        text = self._lowered(text)
        if self._bpe is not None:
            return str(self._bpe.encode(text)).split(), how + self._notes
        if mark is not None:
            raise ValueError(
                f"the dictionary has subwords, and nothing says how the text is cut into them: "
                f"give {_HOW[self._kind]} of the training, or a text that is cut already"
            )
        return text.split(), how + self._notes

    def _lowered(self, text: str) -> str:
        return text.lower() if self._is_lower else text

    def _is_cut(self, text: str) -> bool:
        """Whether a text has marks of subwords, and every token of it is a piece.

        Where nothing can cut it the marks are enough: the dictionary lacks pieces, too.
        """
        mark = _MARKS.get(self._kind)
        if mark is None or mark not in text:
            return False
        if self._bpe is None:
            return True
        is_marked = str.startswith if self._kind == SENTENCEPIECE else str.endswith
        if self._kind == SENTENCEPIECE and not text.lstrip().startswith(mark):
            return False
        return all(
            self._dictionary.index(one) != self._dictionary.unk()
            or (is_marked(one, mark) and one != mark)
            for one in text.split()
        )

    def _found(self) -> Any:
        """The subword model beside the data, or None."""
        assert self._folder is not None
        data = Path(self._folder)
        if self._kind == SENTENCEPIECE:
            files: Iterator[Path] = _models_by(data)
            option = "sentencepiece_model"
        else:
            places = [data, data.parent / "bpe", data.parent]
            own = [f"{name}.{self._language}" for name in _CODES] if self._language else []
            files = (
                place / name
                for place in places
                for name in (*own, *_CODES)
                if (place / name).is_file()
            )
            option = "bpe_codes"
        for file in files:
            bpe = built(Namespace(bpe=self._kind, **{option: str(file)}), self._kind)
            if self._kind == SUBWORD_NMT or self._fits(bpe):
                name = option.replace("_", "-")
                self._notes.append(f"cut by --bpe {self._kind} --{name} {file}")
                return bpe
        return None

    def _fits(self, bpe: Any) -> bool:
        """Whether the pieces of the dictionary are those of a model of sentencepiece."""
        known = range(self._dictionary.nspecial, len(self._dictionary))
        pieces = {bpe.sp.IdToPiece(number) for number in range(bpe.sp.GetPieceSize())}
        there = sum(self._dictionary[number] in pieces for number in known)
        # fairseq fills a dictionary up to a multiple of eight
        fillers = sum(self._dictionary[number].startswith("madeupword") for number in known)
        return there >= _FITS * max(1, len(known) - fillers)


def _has_no_capitals(dictionary: Any) -> bool:
    """Whether a dictionary has letters that could be capitals, and are not."""
    end = len(dictionary) - markers_of(dictionary)
    symbols = dictionary.symbols[dictionary.nspecial : end]
    return any(one != one.upper() for one in symbols if not one.startswith("madeupword")) and all(
        one == one.lower() for one in symbols
    )


def _models_by(data: Path) -> Iterator[Path]:
    """Files that may be models of sentencepiece, in the folder of the data and beside it."""
    for place in (data, data.parent / "spm", data.parent / "bpe", data.parent):
        yield from (one for one in sorted(place.glob("*.model")) if one.is_file())


def built(args: Any, name: str | None) -> Any:
    """fairseq's subwords or tokeniser of some options.

    Args:
        args: with ``bpe`` or ``tokenizer``, and what belongs to it.
        name: of the one that is asked for; None for none.

    Raises:
        ValueError: a file is missing or damaged, or an option is.
        ModuleNotFoundError: a package is not installed.
    """
    if name is None:
        return None
    is_bpe = getattr(args, "bpe", None) == name
    option = "--bpe" if is_bpe else "--tokenizer"
    file_option = {SENTENCEPIECE: "sentencepiece_model", SUBWORD_NMT: "bpe_codes"}.get(name, "")
    path = getattr(args, file_option, None)
    shown = f"{option} {name}" + (f" --{file_option.replace('_', '-')} {path}" if path else "")
    if is_bpe and file_option and (path in (None, "???") or not Path(str(path)).is_file()):
        needed = f"{option} {name} needs --{file_option.replace('_', '-')} FILE"
        raise ValueError(needed if path in (None, "???") else f"{needed}: there is no file {path}")
    build = encoders.build_bpe if is_bpe else encoders.build_tokenizer
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # sacremoses and others tell their paths
            return build(args)
    except ImportError as error:
        raise ModuleNotFoundError(f"{shown}: {error}", name=error.name) from error
    except Exception as error:  # whatever the packages make of a damaged file
        raise ValueError(f"{shown} cannot be used: {reason(error)}") from error


def unknown_said(segmented: Sequence[Segmented]) -> list[str]:
    """Sentences on what models do not know of texts."""
    lines = []
    lost = list(dict.fromkeys(piece for one in segmented for piece in one.unknown))
    if lost:
        shown = ", ".join(lost[:10]) + ", …" * (len(lost) > 10)
        lines.append(f"not in the dictionary, and read as <unk>: {shown}")
    markers = {new: old for one in segmented for new, old in one.markers.items()}
    if markers:
        lines.append(", ".join(f"{new} is {old}" for new, old in markers.items()))
    return lines
