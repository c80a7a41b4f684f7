"""Sentence pairs, or one text, out of the archives in which corpora are published.

corpora.py pairs europarl-v7.tgz 'training/europarl-v7.de-en.{lang}' en de text/train
corpora.py text wikitext-103-v1.zip wikitext-103/wiki.test.tokens text/test.en
corpora.py subtitles en-ru.txt.zip en-ru.xml.gz en ru text --train 6000000 --valid 10000 --test 10000
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from archives import append_text
from sentences import Corpus, write_pairs
from subtitles import Draw, write_subtitles


def parser() -> argparse.ArgumentParser:
    """The options of the commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    pairs = commands.add_parser("pairs", help="append the pairs of a corpus to two files")
    pairs.add_argument("archive", type=Path)
    pairs.add_argument("member", help="with {lang} for the language, {role} for src or ref")
    pairs.add_argument("source")
    pairs.add_argument("target")
    pairs.add_argument("prefix", type=Path, help="of the two files, which end with the languages")
    pairs.add_argument(
        "--separator",
        metavar="MARK LANGUAGES",
        help="both languages are in one file, such as '||| ru,en'",
    )
    pairs.add_argument("--keep-empty", action="store_true", help="leave nothing out")
    text = commands.add_parser("text", help="append a text, as it is, to a file")
    text.add_argument("archive", type=Path)
    text.add_argument("member", help="its name in the archive")
    text.add_argument("file", type=Path)
    subtitles = commands.add_parser("subtitles", help="draw splits from OPUS's OpenSubtitles")
    subtitles.add_argument("moses", type=Path, help="the zip with the sentences and their .ids")
    subtitles.add_argument("alignment", type=Path, help="the .xml.gz with each link's overlap")
    subtitles.add_argument("source")
    subtitles.add_argument("target")
    subtitles.add_argument("folder", type=Path)
    subtitles.add_argument("--overlap", type=float, default=0.9, help="0 to 1 (default: 0.9)")
    for split in ("train", "valid", "test"):
        subtitles.add_argument(f"--{split}", type=int, required=True, help="pairs")
    subtitles.add_argument("--seed", type=int, default=1)
    return parser


def main(arguments: list[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    try:
        if options.command == "text":
            append_text(options.archive, options.member, options.file)
            return
        languages = (options.source, options.target)
        if options.command == "pairs":
            corpus = Corpus(options.archive, options.member, languages, options.separator)
            print(write_pairs(corpus, options.prefix, keep_empty=options.keep_empty))
        else:
            draw = Draw(options.train, options.valid, options.test, options.overlap, options.seed)
            archives = (options.moses, options.alignment)
            for line in write_subtitles(archives, languages, options.folder, draw):
                print(line)
    except ValueError as error:
        sys.exit(f"{error}")
    except OSError as error:
        sys.exit(f"{error.strerror}: {error.filename or options}")


if __name__ == "__main__":
    main()
