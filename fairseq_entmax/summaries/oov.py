"""Words outside the vocabulary, as markers that a model can copy.

The last N entries of a vocabulary of words are the markers ``<unk-0>`` to ``<unk-(N-1)>``. In a
source, each distinct unknown word becomes a marker, numbered in order of first occurrence, so
cutting a source does not change its numbers. In the target, an unknown word becomes the marker
that it has in the source. fairseq turns all other unknown words into ``<unk>``: those of the
target that are not in the source, and those of both beyond the first N.

Source: See et al. 2017, *Get To The Point*, section 2.2, where they are the extended vocabulary.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import BinaryIO

from fairseq_entmax.summaries.generated import Line, parse_line, read_lines

UNKNOWN = "<unk>"
# Every dictionary of fairseq begins with these, but its file does not contain them
SPECIAL = frozenset({"<s>", "<pad>", "</s>", UNKNOWN})
MARKER = re.compile(r"<unk-(\d{1,9})>")
_OVERWRITE = "#fairseq:overwrite"
_FITTING = (
    "give the text before it was marked, the model's dictionary, and --cut-source as when marking"
)


@dataclass(frozen=True)
class Vocabulary:
    """The words of a dictionary file, fairseq's special ones, and the number of its markers."""

    words: frozenset[str]
    markers: int

    def unknown(self, source: Iterable[str]) -> dict[str, int]:
        """Number, from 0, the distinct words of a source that are not in the vocabulary."""
        numbers: dict[str, int] = {}
        for word in source:
            if word not in self.words:
                numbers.setdefault(word, len(numbers))
        return numbers

    def marked(self, words: Iterable[str], unknown: dict[str, int]) -> list[str]:
        """Replace the words that have a marker by it."""
        markers = self.markers
        return [
            marker(unknown[word]) if unknown.get(word, markers) < markers else word
            for word in words
        ]


def marker(number: int) -> str:
    return f"<unk-{number}>"


def unmarked_words(path: str) -> Iterator[list[str]]:
    """The words of each line of a text; ValueError if one looks like a marker."""
    for place, line in enumerate(read_lines(path), start=1):
        if match := re.search(rf"(?<!\S){MARKER.pattern}(?!\S)", line):
            raise ValueError(
                f"line {place} of {path} has the word {match[0]}, which is a marker: give the "
                f"text before it was marked, or write that word differently"
            )
        yield line.split()


def read_vocabulary(path: str) -> Vocabulary:
    """Read a dictionary with markers, in fairseq's format: ``word count`` on each line."""
    lines = (line.rstrip().removesuffix(_OVERWRITE).rstrip() for line in read_lines(path))
    entries = [line.rpartition(" ") for line in lines]
    words, counts = [word for word, _, _ in entries], [count for _, _, count in entries]
    number = sum(MARKER.fullmatch(word) is not None for word in words)
    markers = [marker(n) for n in range(number)]
    if not all(map(str.isdecimal, counts)) or not markers or words[-number:] != markers:
        raise ValueError(
            f"--vocab {path} is not a dictionary that ends with the markers {marker(0)}, "
            f"{marker(1)}, …: make it with fairseq-entmax oov vocabulary"
        )
    return Vocabulary(SPECIAL.union(words[:-number]), number)


def mark(
    vocabulary: Vocabulary,
    paths: Sequence[str],
    outputs: Sequence[BinaryIO],
    cuts: Sequence[int | None],
) -> list[Counter[str]]:
    """Write a source, and its target if there is one, with markers; the source comes first.

    Words that are cut off a source have no marker in the target. Returns for each text the number
    of ``words``, of ``unknown`` words, and of those ``marked``.
    """
    counts: list[Counter[str]] = [Counter() for _ in paths]
    for place, sides in enumerate(zip_longest(*map(unmarked_words, paths)), start=1):
        unknown: dict[str, int] | None = None
        for words, path, output, cut, count in zip(
            sides, paths, outputs, cuts, counts, strict=True
        ):
            if words is None:
                raise ValueError(
                    f"{path} has {place - 1} lines, but its parallel text has more: give "
                    f"two texts whose lines correspond"
                )
            words = words[:cut]
            if unknown is None:  # the source comes first
                unknown = vocabulary.unknown(words)
            marked = vocabulary.marked(words, unknown)
            output.write(f"{' '.join(marked)}\n".encode())
            count["words"] += len(words)
            count["unknown"] += sum(word not in vocabulary.words for word in words)
            count["marked"] += sum(old != new for old, new in zip(words, marked, strict=True))
    return counts


def restore(
    vocabulary: Vocabulary, generated: str, source: str, cut: int | None, output: BinaryIO
) -> Counter[str]:
    """Copy the output of fairseq-generate, with words in place of markers in S, T, H and D.

    Returns the numbers of ``hypotheses``, of markers in them that were ``restored`` or ``lost``
    (those for no word become ``<unk>``), and of ``sources``, each of which matched its line.
    """
    sources = [words[:cut] for words in unmarked_words(source)]
    counts: Counter[str] = Counter()
    for line in read_lines(generated):
        parsed = parse_line(line)
        if parsed is not None:
            if parsed.number >= len(sources):
                raise ValueError(
                    f"--source {source} has {len(sources)} lines, but {generated} has sentence "
                    f"{parsed.number}, counted from 0: {_FITTING}"
                )
            words = sources[parsed.number]
            if parsed.kind == "S":
                _check_source(parsed, vocabulary, words, generated, source)
                counts["sources"] += 1
            text, lost = _restored(parsed.text, list(vocabulary.unknown(words)))
            if parsed.kind == "H":  # D- repeats it, and is not counted
                counts["hypotheses"] += 1
                counts["lost"] += lost
                counts["restored"] += len(MARKER.findall(parsed.text)) - lost
            line = parsed.head + text
        output.write(f"{line}\n".encode())
    if not counts["hypotheses"]:
        raise ValueError(
            f"{generated} has no line H-0, so it is not output of fairseq-generate: give what it "
            f"printed (without --quiet)"
        )
    return counts


def _restored(text: str, words: Sequence[str]) -> tuple[str, int]:
    """A text with words in place of its markers, and the number of markers without a word."""
    lost = sum(int(number) >= len(words) for number in MARKER.findall(text))
    return MARKER.sub(lambda match: (*words, UNKNOWN)[min(int(match[1]), len(words))], text), lost


def _check_source(
    printed: Line, vocabulary: Vocabulary, words: Sequence[str], generated: str, source: str
) -> None:
    """Check that a source that fairseq-generate printed is its line of the source, marked.

    fairseq may have cut it. White space and entities are ignored, as --tokenizer changes them.
    """
    seen = [
        word if word in vocabulary.words or MARKER.fullmatch(word) else UNKNOWN
        for word in vocabulary.marked(words, vocabulary.unknown(words))
        if word not in SPECIAL or word == UNKNOWN  # fairseq does not print the other special ones
    ]
    whole, start = (html.unescape("".join(text)) for text in (seen, printed.text.split()))
    if not whole.startswith(start):
        raise ValueError(
            f"S-{printed.number} of {generated} is not line {printed.number + 1} of --source "
            f"{source} with the markers of --vocab: {_FITTING}"
        )
