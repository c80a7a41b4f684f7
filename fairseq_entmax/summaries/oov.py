"""Words outside the vocabulary, as markers that a model can copy.

A vocabulary of words has N markers, ``<unk-0>`` to ``<unk-(N-1)>``, as its last entries. In a
source, each distinct word that is not in the vocabulary becomes one, numbered in order of first
occurrence; so a source that is cut keeps its numbers. In the target, a word outside the
vocabulary becomes the marker that it has in the source. All others stay as they are, and fairseq
makes them ``<unk>``: words of the target that are not in the source, and of both those beyond
the first N.

Source: See et al. 2017, *Get To The Point*, section 2.2, where they are the extended vocabulary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import BinaryIO

from fairseq_entmax.summaries.generated import read_lines

UNKNOWN = "<unk>"
# What every dictionary of fairseq has at its beginning, and no file of one
SPECIAL = frozenset({"<s>", "<pad>", "</s>", UNKNOWN})
MARKER = re.compile(r"<unk-(\d{1,9})>")
_OVERWRITE = "#fairseq:overwrite"


@dataclass(frozen=True)
class Vocabulary:
    """What a dictionary file says of words and markers.

    Attributes:
        words: without markers, with fairseq's special words.
        markers: how many markers there are, 0 or more.
    """

    words: frozenset[str]
    markers: int

    def unknown(self, source: Iterable[str]) -> dict[str, int]:
        """The distinct words of a source outside the vocabulary, to their numbers from 0."""
        numbers: dict[str, int] = {}
        for word in source:
            if word not in self.words:
                numbers.setdefault(word, len(numbers))
        return numbers

    def marked(self, words: Iterable[str], unknown: dict[str, int]) -> list[str]:
        """Words, with markers in place of those that have one.

        Args:
            words: of a source, or of its target.
            unknown: of :meth:`unknown`, of the source.
        """
        markers = self.markers
        return [
            marker(unknown[word]) if unknown.get(word, markers) < markers else word
            for word in words
        ]


@dataclass
class MarkedCounts:
    """What marking a text came to.

    Attributes:
        sentences: how many there are.
        source_words, target_words: words, after cutting.
        source_unknown, target_unknown: of these, outside the vocabulary.
        source_marked, target_marked: of these, with a marker.
    """

    sentences: int = 0
    source_words: int = 0
    source_unknown: int = 0
    source_marked: int = 0
    target_words: int = 0
    target_unknown: int = 0
    target_marked: int = 0


def marker(number: int) -> str:
    """The marker with a number."""
    return f"<unk-{number}>"


def count_words(paths: Sequence[str]) -> Counter[str]:
    """How often each word occurs in texts, without fairseq's special words.

    Raises:
        ValueError: a text has a marker already, or is none in UTF-8; names file and line.
        OSError: one cannot be read.
    """
    counts: Counter[str] = Counter()
    for path in paths:
        for place, line in enumerate(read_lines(path, "a text"), start=1):
            words = line.split()
            check_unmarked(words, path, place)
            counts.update(words)
    for word in SPECIAL:
        counts.pop(word, None)
    return counts


def vocabulary_lines(counts: Counter[str], words: int, markers: int) -> Iterator[str]:
    """The lines of a dictionary as fairseq reads it: the most frequent words, then markers.

    Words that are as frequent are in alphabetical order, as in fairseq's own.

    Args:
        counts: how often each word occurs.
        words: how many to keep, 1 or more.
        markers: how many markers to add, 0 or more.
    """
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:words]:
        yield f"{word} {count}\n"
    for number in range(markers):
        yield f"{marker(number)} 0\n"


def read_vocabulary(path: str) -> Vocabulary:
    """Read a dictionary with markers.

    Args:
        path: in fairseq's form, ``word count`` a line.

    Raises:
        ValueError: it is no dictionary, or its markers are not its last entries from
            ``<unk-0>`` on, or there are none; names the line.
        OSError: it cannot be read.
    """
    words: set[str] = set()
    markers = 0
    for place, line in enumerate(read_lines(path, "a dictionary"), start=1):
        word, _, count = line.rstrip().removesuffix(_OVERWRITE).rstrip().rpartition(" ")
        if not word or not count.removeprefix("-").isdecimal():
            raise ValueError(
                f"--vocab {path}: line {place} is not 'word count': give the dictionary that "
                f"fairseq-entmax oov vocabulary wrote, or dict.LANG.txt of the binarised data"
            )
        if word == marker(markers):
            markers += 1
        elif MARKER.fullmatch(word) or markers:
            raise ValueError(
                f"--vocab {path}: line {place} has {word} where {marker(markers)} or the end "
                f"should be, as markers are the last entries: make it with fairseq-entmax oov "
                f"vocabulary"
            )
        else:
            words.add(word)
    if not markers:
        raise ValueError(
            f"--vocab {path} has no markers {marker(0)}, {marker(1)}, …: make it with "
            f"fairseq-entmax oov vocabulary --markers N"
        )
    return Vocabulary(SPECIAL.union(words), markers)


def mark(
    vocabulary: Vocabulary,
    source: str,
    target: str | None,
    outputs: Sequence[BinaryIO],
    cut_source: int | None = None,
    cut_target: int | None = None,
) -> MarkedCounts:
    """Write a text, and its target, with markers.

    Args:
        vocabulary: with markers.
        source: a file with a sentence a line.
        target: likewise, or None.
        outputs: for the source, and for the target if there is one.
        cut_source: how many words of each source to keep, 1 or more; those that are cut off
            have no marker in the target. None keeps all.
        cut_target: likewise of the target.

    Raises:
        ValueError: the files have different numbers of lines, or a marker already; names the
            line.
        OSError: a file cannot be read or written.
    """
    counts = MarkedCounts()
    targets = [] if target is None else read_lines(target, "a text")
    pairs = zip_longest(read_lines(source, "a text"), targets)
    for place, (source_line, target_line) in enumerate(pairs, start=1):
        if source_line is None or (target is not None and target_line is None):
            raise _different_lengths(source, str(target))
        words = source_line.split()
        check_unmarked(words, source, place)
        words = words[:cut_source]
        unknown = vocabulary.unknown(words)
        marked = vocabulary.marked(words, unknown)
        outputs[0].write(f"{' '.join(marked)}\n".encode())
        counts.sentences += 1
        counts.source_words += len(words)
        counts.source_unknown += sum(word in unknown for word in words)
        counts.source_marked += _changed(words, marked)
        if target_line is None:
            continue
        words = target_line.split()
        check_unmarked(words, str(target), place)
        words = words[:cut_target]
        marked = vocabulary.marked(words, unknown)
        outputs[1].write(f"{' '.join(marked)}\n".encode())
        counts.target_words += len(words)
        counts.target_unknown += sum(word not in vocabulary.words for word in words)
        counts.target_marked += _changed(words, marked)
    return counts


def check_unmarked(words: Iterable[str], path: str, place: int) -> None:
    """Refuse a line that has a marker before any was put there.

    Raises:
        ValueError: names file and line.
    """
    for word in words:
        if word.startswith("<unk-") and MARKER.fullmatch(word):
            raise ValueError(
                f"line {place} of {path} has the word {word}, which means a marker: give the text "
                f"before it was marked, or write that word in another way"
            )


def _changed(before: Iterable[str], after: Iterable[str]) -> int:
    return sum(old is not new for old, new in zip(before, after, strict=True))


def _different_lengths(source: str, target: str) -> ValueError:
    lines = [sum(1 for _ in read_lines(path, "a text")) for path in (source, target)]
    return ValueError(
        f"--source {source} has {lines[0]} lines and --target {target} has {lines[1]}: give two "
        f"texts whose lines belong together"
    )
