"""What ``fairseq-preprocess`` wrote, checked before fairseq reads it.

fairseq maps these files into memory and believes every number in them: a file that is cut short
or damaged ends in an error far from its cause, or in other sentences than the text had. Looked at
are dictionaries, and data of the implementation ``mmap``, fairseq's default, whose index
``SPLIT.SRC-TGT.LANG.idx`` holds, little endian: ``MMIDIDX\\0\\0``, the version 1 (8 bytes), a
code of the tokens' type (1), the number of sentences (8), the tokens of each (4), and the byte in
``.bin`` at which each begins (8). Data of a language model has one side, ``SPLIT.idx``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from fairseq.data import Dictionary, data_utils

from fairseq_entmax.reasons import reason

MAGIC = b"MMIDIDX\x00\x00"
# Those of older and of compressed data, which fairseq reads on its own
OTHER_MAGICS = (b"TNTIDX\x00\x00", b"HUFFIDX\x00")
_HEADER = struct.Struct("<9sQBQ")
_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2", 9: "<u4", 10: "<u8"}
_AT_ONCE = 1 << 22
_REMEDY = "run fairseq-preprocess again"
# The tasks whose data this is
TASKS = ("translation", "entmax_summarization")
LANGUAGE_MODELING = "language_modeling"


def languages(folder: str, source: str | None, target: str | None) -> tuple[str, str] | None:
    """The languages of a folder, from the names of its files where they are not given."""
    if not (source and target):
        try:
            source, target = data_utils.infer_language_pair(folder)
        except (OSError, ValueError):
            return None
    return (source, target) if source and target else None


def check_dictionaries(folder: str, pair: Sequence[str]) -> list[Dictionary]:
    """Read the dictionaries of both languages, and refuse what fairseq cannot read.

    Args:
        folder: with ``dict.LANG.txt``.
        pair: both languages.

    Raises:
        ValueError: names the file.
    """
    hint = f"give --source-lang and --target-lang as they are in the names of the files there, or {_REMEDY}"
    return [
        check_dictionary(os.path.join(folder, f"dict.{language}.txt"), hint) for language in pair
    ]


def check_dictionary(path: str, if_missing: str = _REMEDY) -> Dictionary:
    """Read a dictionary, and refuse what fairseq cannot read.

    Args:
        path: the file.
        if_missing: what to do where there is none.

    Raises:
        ValueError: names the file.
    """
    if not os.path.isfile(path):
        kind = "it is no file" if os.path.exists(path) else "it is missing"
        raise ValueError(f"there is no dictionary {path}, {kind}: {if_missing}")
    try:
        dictionary = Dictionary.load(path)
    except Exception as error:  # fairseq raises plain Exception, too
        raise ValueError(
            f"the dictionary {path} cannot be read: {reason(error)}; {_REMEDY}"
        ) from None
    if not all(0 <= count < 1 << 62 for count in dictionary.count):
        raise ValueError(f"the dictionary {path} has a count that is none: {_REMEDY}")
    return dictionary


def check_split(folder: str, split: str, pair: Sequence[str], sizes: Sequence[int] | None) -> bool:
    """Refuse a damaged data set.

    Args:
        folder: what ``fairseq-preprocess`` wrote.
        split: such as ``valid``.
        pair: source and target language.
        sizes: of the dictionaries of both: every token is looked at. None looks at indices.

    Returns:
        Whether it was looked at, all of it: False where it is not there, or is of an
        implementation that fairseq reads on its own.

    Raises:
        ValueError: names the file.
    """
    for names in (pair, tuple(reversed(pair))):
        prefix = os.path.join(folder, f"{split}.{'-'.join(names)}.")
        if os.path.exists(f"{prefix}{pair[0]}.idx"):
            break
    else:
        return False
    numbers: dict[str, int] = {}
    for place, language in enumerate(pair):
        if os.path.exists(f"{prefix}{language}.idx"):
            number = check_side(prefix + language, None if sizes is None else sizes[place])
            if number is None:
                return False
            numbers[f"{prefix}{language}.idx"] = number
    if len(set(numbers.values())) > 1:
        said = " and ".join(f"{name} is of {number}" for name, number in numbers.items())
        raise ValueError(f"{said} sentences, which do not fit each other: {_REMEDY}")
    return True


def check_items(sides: Mapping[str, Any], sizes: Sequence[int], what: str) -> None:
    """Look at every token of data sets that fairseq has read.

    Args:
        sides: a name for errors, to sentences.
        sizes: of the dictionaries.
        what: the data set, for errors.

    Raises:
        ValueError: names the sentence.
    """
    for (side, sentences), size in zip(sides.items(), sizes, strict=True):
        number = 0
        try:
            if getattr(sentences, "supports_prefetch", False):
                sentences.prefetch(range(len(sentences)))
            for number in range(len(sentences)):
                tokens = sentences[number]
                if not len(tokens) or int(tokens.min()) < 0 or int(tokens.max()) >= size:
                    raise ValueError("it is empty, or has tokens that the dictionary has not")
        except Exception as error:
            raise ValueError(
                f"{what}: sentence {number} of the {side} cannot be read: {reason(error)}; "
                f"{_REMEDY}"
            ) from None


def check_training_data(args: Any) -> list[Dictionary] | None:
    """Refuse damaged data of ``fairseq-train`` when its options are read.

    Only what would be an error later is one here: what is not there, or not of a form that is
    known, is left to fairseq. Tokens are not looked at: of a large corpus, that takes long.

    Args:
        args: the options; those of other tasks than :data:`TASKS` and ``language_modeling`` are
            left alone.

    Returns:
        The dictionaries of source and target, or the one of a language model; None where they
        were not looked at.

    Raises:
        ValueError: names the file.
    """
    if getattr(args, "task", None) == LANGUAGE_MODELING and getattr(args, "data", None):
        return _check_language_modeling(args)
    if getattr(args, "task", None) not in TASKS or not getattr(args, "data", None):
        return None
    dictionaries: list[Dictionary] | None = None
    for folder in str(args.data).split(os.pathsep):
        if not os.path.isdir(folder):
            continue
        pair = languages(folder, args.source_lang, args.target_lang)
        if pair is None:
            continue
        if dictionaries is None:
            dictionaries = check_dictionaries(folder, pair)
        for split in (args.train_subset, *str(args.valid_subset).split(",")):
            check_split(folder, split, pair, None)
    return dictionaries


def _check_language_modeling(args: Any) -> list[Dictionary] | None:
    dictionary: Dictionary | None = None
    remedy = "run fairseq-preprocess --only-source, which language models take their data from"
    for folder in str(args.data).split(os.pathsep):
        if not os.path.isdir(folder):
            continue
        if dictionary is None:
            dictionary = check_dictionary(os.path.join(folder, "dict.txt"), remedy)
        for split in (args.train_subset, *str(args.valid_subset).split(",")):
            prefix = os.path.join(folder, split)
            if os.path.exists(f"{prefix}.idx"):
                check_side(prefix, None)
            elif split == args.train_subset and not os.path.exists(prefix):  # not raw text either
                raise ValueError(f"there is no data set {prefix}.idx: {remedy}")
    return None if dictionary is None else [dictionary]


def check_side(prefix: str, size: int | None) -> int | None:
    """Refuse one damaged file of sentences.

    Args:
        prefix: its path without ``.idx`` and ``.bin``.
        size: of the dictionary: every token is looked at. None looks at the index alone.

    Returns:
        The number of sentences; None where the file is of another implementation.

    Raises:
        ValueError: names the file.
    """
    index, data = f"{prefix}.idx", f"{prefix}.bin"
    try:
        length = os.path.getsize(index)
        with open(index, "rb") as file:
            header = file.read(_HEADER.size)
            if header.startswith(OTHER_MAGICS):
                return None
            if len(header) < _HEADER.size or not header.startswith(MAGIC):
                raise ValueError(f"{index} is damaged, or no index of fairseq's: {_REMEDY}")
            _, version, code, number = _HEADER.unpack(header)
            if version != 1 or code not in _TYPES:
                raise ValueError(f"{index} is damaged in its header: {_REMEDY}")
            if length != _HEADER.size + 12 * number:
                raise ValueError(
                    f"{index} is damaged: it has {length:,} bytes, and {number:,} sentences take "
                    f"{_HEADER.size + 12 * number:,}; {_REMEDY}"
                )
            tokens = numpy.fromfile(file, "<i4", number).astype(numpy.int64)
            starts = numpy.fromfile(file, "<i8", number)
        if not number:
            raise ValueError(f"{index} has no sentence: {_REMEDY}")
        kind = numpy.dtype(_TYPES[code])
        ends = tokens.cumsum() * kind.itemsize
        if tokens.min() < 1 or not numpy.array_equal(starts, ends - tokens * kind.itemsize):
            raise ValueError(
                f"{index} is damaged: its sentences are empty or do not follow each other; {_REMEDY}"
            )
        if not os.path.isfile(data):
            raise ValueError(f"{data} is missing, and {index} is there: {_REMEDY}")
        if os.path.getsize(data) != ends[-1]:
            raise ValueError(
                f"{data} is damaged: it has {os.path.getsize(data):,} bytes, and its index asks "
                f"for {ends[-1]:,}; {_REMEDY}"
            )
        if size is not None:
            _check_tokens(data, kind, size, ends // kind.itemsize)
    except OSError as error:
        raise ValueError(f"{prefix}.idx or .bin cannot be read: {error}") from error
    return int(number)


def tokens_of(prefix: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    """All tokens of a file that :func:`check_side` takes, and where each sentence ends in them."""
    with open(f"{prefix}.idx", "rb") as file:
        _, _, code, number = _HEADER.unpack(file.read(_HEADER.size))
        lengths = numpy.fromfile(file, "<i4", number).astype(numpy.int64)
    return numpy.memmap(f"{prefix}.bin", dtype=_TYPES[code], mode="r"), lengths.cumsum()


def _check_tokens(path: str, kind: numpy.dtype, size: int, ends: numpy.ndarray) -> None:
    tokens = numpy.memmap(path, dtype=kind, mode="r")
    for start in range(0, len(tokens), _AT_ONCE):
        part = tokens[start : start + _AT_ONCE]
        wrong = (part < 0) | (part >= size)
        if wrong.any():
            place = start + int(wrong.argmax())
            sentence = int(numpy.searchsorted(ends, place, side="right"))
            raise ValueError(
                f"{path} has the token {tokens[place]} in sentence {sentence}, and the dictionary "
                f"has {size}: it is damaged, or the dictionary is of other data; {_REMEDY}"
            )
