"""Read sentence pairs, or a single text, from the archives in which corpora are published.

corpora.py pairs europarl-v7.tgz 'training/europarl-v7.de-en.{lang}' en de text/train [OPTION]
corpora.py text wikitext-103-v1.zip wikitext-103/wiki.test.tokens text/test.en
corpora.py subtitles en-ru.txt.zip en-ru.xml.gz en ru text 6000000 10000 10000

Pairs are appended to two files. --keep-empty leaves nothing out; --separator '||| ru,en' says that
one file has both languages, in this order. Subtitles take the pairs of training, validation, test.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from archives import unpack
from messages import one_sentence
from sentences import write_pairs
from subtitles import write_subtitles

SPLITS = ("train", "valid", "test")


def main(arguments: list[str]) -> None:
    command, archive, *words = arguments
    with one_sentence():
        if command == "text":
            member, file = words
            with tempfile.TemporaryDirectory(dir=Path(file).parent) as folder:
                (text,) = unpack(Path(archive), [member], Path(folder))
                shutil.move(text, file)
        elif command == "pairs":
            member, source, target, prefix, *how = words
            separator = how[1] if how[:1] == ["--separator"] else None
            files, languages = (Path(archive), member, Path(prefix)), (source, target)
            print(write_pairs(*files, languages, separator, keep_empty=how == ["--keep-empty"]))
        else:
            alignment, source, target, into, *numbers = words
            sizes = dict(zip(SPLITS, map(int, numbers), strict=True))
            archives = Path(archive), Path(alignment)
            print(*write_subtitles(archives, (source, target), Path(into), sizes), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
