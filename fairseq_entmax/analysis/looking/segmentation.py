"""How a text becomes the tokens that a model reads: cut as its training text was.

What the user says is done. Where nothing is said, the subword model is looked for where recipes
leave it: in the folder of the data, and in ``spm`` or ``bpe`` beside it. It is taken only if its
pieces are those of the dictionary. A text that is cut already, with the marks of subwords in it, is
left as it is.
"""

from __future__ import annotations

import contextlib
import io
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq.data import encoders
from torch import Tensor

from fairseq_entmax.analysis.tokens import MARK, SENTENCEPIECE, SUBWORD_NMT, subword_kind
from fairseq_entmax.models.copy_transformer import markers_of
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
    """

    tokens: Tensor
    unknown: list[str]
    markers: dict[str, str] = field(default_factory=dict)


class Segmentation:
    """Cuts the texts of one side.

    Args:
        dictionary: fairseq's, of that side.
        tokenizer, bpe: of fairseq; None where the text is not cut so.
        folder: with the data, to look for a subword model by; None looks for none.
        language: of that side, for merges that are of one language.

    Attributes:
        said: how texts are cut, where that was found out; empty where it was said.
    """

    def __init__(
        self,
        dictionary: Any,
        tokenizer: Any = None,
        bpe: Any = None,
        folder: str | None = None,
        language: str | None = None,
    ) -> None:
        self._dictionary = dictionary
        self._tokenizer, self._bpe = tokenizer, bpe
        self._kind = subword_kind(dictionary)
        self._folder, self._language = folder, language
        self.said = ""
        if bpe is None and folder is not None and self._kind in _HOW:
            self._bpe = self._found()
        tok = None if folder is None else Path(folder).parent / "tok"
        if tokenizer is None and tok is not None and tok.is_dir():
            cut = (
                f"the training text was cut into words, as {tok} has it: give such words, or as the "
                f"recipes cut them --tokenizer moses --moses-no-dash-splits --moses-no-escape"
            )
            self.said = "; ".join(filter(None, (self.said, cut)))

    def __call__(self, text: str) -> Segmented:
        """Cut a text.

        Raises:
            ValueError: it is empty, or has to be cut and nothing says how.
        """
        pieces = self._cut(text) if text.strip() else []
        if not pieces:
            raise ValueError("a text is empty: give a sentence")
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
        return Segmented(tokens.long(), list(dict.fromkeys(lost)), markers)

    def _cut(self, text: str) -> list[str]:
        mark = _MARKS.get(self._kind)
        if mark is not None and mark in text:  # cut already
            return text.split()
        if self._tokenizer is not None:
            text = self._tokenizer.encode(text)
        if self._bpe is not None:
            return str(self._bpe.encode(text)).split()
        if mark is not None:
            raise ValueError(
                f"the dictionary has subwords, and nothing says how the text is cut into them: "
                f"give {_HOW[self._kind]} of the training, or a text that is cut already"
            )
        return text.split()

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
                self.said = f"cut by --bpe {self._kind} --{name} {file}"
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
        raise ValueError(f"{shown} cannot be used: {str(error) or type(error).__name__}") from error


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
