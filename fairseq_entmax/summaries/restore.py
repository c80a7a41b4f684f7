"""Generated markers back to the words of the source that they stand for."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from fairseq_entmax.summaries.generated import Generated, parse_line, read_generated, read_lines
from fairseq_entmax.summaries.oov import MARKER, SPECIAL, UNKNOWN, Vocabulary, check_unmarked


@dataclass
class RestoredCounts:
    """What restoring came to, of hypotheses.

    Attributes:
        sentences: how many there are.
        markers: in all of them.
        lost: of these, those that stand for no word of the source, written as ``<unk>``.
        lost_sentences: in which these are.
    """

    sentences: int = 0
    markers: int = 0
    lost: int = 0
    lost_sentences: int = 0


class Restorer:
    """Restores the sentences of one generated file, by their numbers.

    Args:
        vocabulary: of the model.
        generated: the file.
        source: the text that was marked, before it was.
        cut_source: as in marking; None if it was not cut there.

    Raises:
        ValueError: the source, or the vocabulary, is not the one of the file; names the
            sentence.
        OSError: a file cannot be read.
    """

    def __init__(
        self, vocabulary: Vocabulary, generated: str, source: str, cut_source: int | None = None
    ) -> None:
        self._vocabulary = vocabulary
        self._generated = read_generated(generated)
        self._words: list[list[str]] = []
        for place, line in enumerate(read_lines(source, "a text"), start=1):
            words = line.split()
            check_unmarked(words, source, place)
            self._words.append(words[:cut_source])
        self._best = self._generated.in_order(len(self._words), "--source", source)
        _check_sources(self._generated, vocabulary, self._words, source)
        self._unknown = [list(vocabulary.unknown(words)) for words in self._words]

    @property
    def is_compared(self) -> bool:
        """Whether the file shows its sources, by which a wrong text is found out."""
        return bool(self._generated.sources)

    def as_text(self, output: BinaryIO) -> RestoredCounts:
        """Write the best hypothesis of each sentence, a line each, in the order of the source."""
        counts = RestoredCounts(len(self._best))
        for number, text in enumerate(self._best):
            output.write(f"{self._restored(number, text, counts)}\n".encode())
        return counts

    def as_generated(self, output: BinaryIO) -> RestoredCounts:
        """Write the file again, all its lines, with words for markers in S, T, H and D."""
        counts = RestoredCounts(len(self._best))
        path = self._generated.path
        lines = [(line, parse_line(line)) for line in read_lines(path, "generated text")]
        # D- and H- are the same hypotheses
        counted = "D" if any(parsed and parsed.kind == "D" for _, parsed in lines) else "H"
        for line, parsed in lines:
            if parsed is not None:
                tally = counts if parsed.kind == counted else RestoredCounts()
                line = parsed.head + self._restored(parsed.number, parsed.text, tally)
            output.write(f"{line}\n".encode())
        return counts

    def _restored(self, number: int, text: str, counts: RestoredCounts) -> str:
        words = self._unknown[number] if number < len(self._unknown) else []
        lost = 0

        def word_of(match: re.Match[str]) -> str:
            nonlocal lost
            place = int(match[1])
            if place >= self._vocabulary.markers:
                raise ValueError(
                    f"sentence {number} of {self._generated.path} has {match[0]}, and --vocab has "
                    f"{self._vocabulary.markers} markers: give the dictionary of the model"
                )
            counts.markers += 1
            if place < len(words):
                return words[place]
            lost += 1
            return UNKNOWN

        restored = MARKER.sub(word_of, text)
        counts.lost += lost
        counts.lost_sentences += lost > 0
        return restored


def _check_sources(
    generated: Generated, vocabulary: Vocabulary, words: Sequence[Sequence[str]], source: str
) -> None:
    """See that each source that fairseq-generate printed is a line of the source, marked.

    fairseq may have cut it. White space and entities do not count, as --tokenizer changes them.
    """
    for number, printed in sorted(generated.sources.items()):
        if number >= len(words):
            continue  # without a hypothesis
        marked = vocabulary.marked(words[number], vocabulary.unknown(words[number]))
        seen = [
            word if word in vocabulary.words or MARKER.fullmatch(word) else UNKNOWN
            for word in marked
            # These fairseq does not print
            if word not in SPECIAL or word == UNKNOWN
        ]
        whole, start = "".join(seen), "".join(printed.split())
        if not (whole.startswith(start) or html.unescape(whole).startswith(html.unescape(start))):
            raise ValueError(
                f"S-{number} of {generated.path} is not line {number + 1} of --source {source} "
                f"with the markers of --vocab: give the text before it was marked, the model's "
                f"dictionary, and --cut-source as in marking"
            )
