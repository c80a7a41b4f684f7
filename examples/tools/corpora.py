"""Sentence pairs, or one text, out of the archives in which corpora are published.

corpora.py pairs europarl-v7.tgz 'training/europarl-v7.de-en.{lang}' en de text/train
corpora.py text wikitext-103-v1.zip wikitext-103/wiki.test.tokens text/test.en
corpora.py subtitles en-ru.txt.zip en-ru.xml.gz en ru text --train 6000000 --valid 10000 --test 10000
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from archives import unpack
from messages import one_sentence
from sentences import write_pairs
from subtitles import write_subtitles

SPLITS = ("train", "valid", "test")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    pairs = commands.add_parser("pairs", help="append the pairs of a corpus to two files")
    pairs.add_argument("archive", type=Path)
    pairs.add_argument("member", help="with {lang} for the language, {role} for src or ref")
    pairs.add_argument("languages", nargs=2, metavar="LANGUAGE", help="source and target")
    pairs.add_argument("prefix", type=Path, help="of the two files, which end with the languages")
    pairs.add_argument("--separator", help="both languages are in one file, such as '||| ru,en'")
    pairs.add_argument("--keep-empty", action="store_true", help="leave nothing out")
    text = commands.add_parser("text", help="take a text, as it is, out of an archive")
    text.add_argument("archive", type=Path)
    text.add_argument("member", help="its name in the archive")
    text.add_argument("file", type=Path)
    subtitles = commands.add_parser("subtitles", help="draw splits from OPUS's OpenSubtitles")
    subtitles.add_argument("moses", type=Path, help="the zip with the sentences and their .ids")
    subtitles.add_argument("alignment", type=Path, help="the .xml.gz with each link's overlap")
    subtitles.add_argument("languages", nargs=2, metavar="LANGUAGE", help="source and target")
    subtitles.add_argument("folder", type=Path)
    for split in SPLITS:
        subtitles.add_argument(f"--{split}", type=int, required=True, help="pairs")
    return parser


def main(arguments: list[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    with one_sentence():
        if given.command == "text":
            with tempfile.TemporaryDirectory(dir=given.file.parent) as folder:
                (text,) = unpack(given.archive, [given.member], Path(folder))
                shutil.move(text, given.file)
        elif given.command == "pairs":
            languages, separator = tuple(given.languages), given.separator
            files = given.archive, given.member, given.prefix
            print(write_pairs(*files, languages, separator, keep_empty=given.keep_empty))
        else:
            sizes = {split: getattr(given, split) for split in SPLITS}
            archives = given.moses, given.alignment
            print(*write_subtitles(archives, given.languages, given.folder, sizes), sep="\n")


if __name__ == "__main__":
    main()
