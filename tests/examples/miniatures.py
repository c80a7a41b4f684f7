"""Miniature archives in the layout and format of the corpora that the recipes read.

English is from the shipped corpus; other languages are made from its Spanish side, word by
word, in the letters of the language, so that there is something to learn.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "examples" / "bible_es_en" / "data" / "bible.es-en.tsv.xz"
TRAIN, VALID, TEST = 240, 16, 12
# For the recipes' scripts: a model of a few updates does not end its sentences by itself
TRIAL = {"GENERATION_OPTIONS": "--max-len-b 20", "SPEED_SENTENCES": "2", "SPEED_REPEATS": "1"}

LETTERS = "abcdefghijklmnñopqrstuvwxyzáéíóúü"
CYRILLIC = "абкдефгхижклмнньпкрстувушийзаэиоую"
KANA = "あびくでえふぐへいじけるむんにおぷきらすとうぶわしやぜアエイオウユ"
GERMAN = str.maketrans({"ñ": "ß", "á": "ä", "ó": "ö", "ú": "ü"})
ROMANIAN = str.maketrans({"ñ": "ș", "á": "ă", "ó": "î", "ú": "ț"})


def in_language(text: str, language: str) -> str:
    """Spanish text in the letters of another language."""
    if language == "en":
        return text
    if language == "de":
        return text.translate(GERMAN)
    if language == "ro":
        return text.translate(ROMANIAN)
    letters = CYRILLIC if language == "ru" else KANA
    small = text.lower().translate(str.maketrans(LETTERS, letters[: len(LETTERS)]))
    if language == "ja":
        return small.replace(" ", "").replace(",", "、").replace(".", "。")
    return small


def verses(number: int) -> list[tuple[str, str]]:
    """Short (Spanish, English) verses from all over the corpus, each once."""
    with lzma.open(CORPUS, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    short = [row for row in rows[::7] if len(row[3]) < 110 and len(row[4]) < 110]
    once = dict.fromkeys((row[3].strip(), row[4].strip()) for row in short)
    return list(once)[:number]


@dataclass
class Texts:
    """Pairs of a miniature corpus in two languages."""

    source: str
    target: str

    def __post_init__(self) -> None:
        pairs = [
            tuple(in_language(es if language != "en" else en, language) for language in self.pair)
            for es, en in verses(TRAIN + VALID + TEST)
        ]
        self.train = pairs[:TRAIN]
        self.valid = pairs[TRAIN : TRAIN + VALID]
        self.test = pairs[TRAIN + VALID :]

    @property
    def pair(self) -> tuple[str, str]:
        return self.source, self.target

    def lines(self, pairs: list[tuple[str, ...]], language: str) -> bytes:
        side = self.pair.index(language)
        return "".join(f"{pair[side]}\n" for pair in pairs).encode()


def lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text, split at "\\n" alone."""
    return path.read_bytes().decode("utf-8").split("\n")[:-1]


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def write_zip(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def segments(sentences: list[str], kind: str, language: str, *, xml: bool) -> bytes:
    """An mteval file: WMT's (not quite SGML, nothing escaped) or IWSLT's (XML)."""
    head = f'<{kind} setid="mini" srclang="any" trglang="{language}">\n'
    lines = ['<doc docid="d1" genre="news" origlang="en">\n<title>A & B</title>\n<p>\n']
    lines += [
        f'<seg id="{number}"> {escape(text) if xml else text} </seg>\n'
        for number, text in enumerate(sentences, 1)
    ]
    begin = '<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n' if xml else ""
    end = f"</p>\n</doc>\n</{kind}>\n" + ("</mteval>\n" if xml else "")
    return (begin + head + "".join(lines) + end).encode()


def tags(sentences: list[str]) -> bytes:
    """IWSLT's training file: talks with lines of tags between the sentences."""
    lines = []
    for start in range(0, len(sentences), 50):
        lines += [
            f"<url>http://www.ted.com/talks/talk_{start}</url>",
            "<keywords>talks, geology, ocean</keywords>",
            "<speaker>Somebody</speaker>",
            f"<talkid>{start}</talkid>",
            "<title>Somebody: Something</title>",
            "<description>A talk about something.</description>",
            *(f" {text} " for text in sentences[start : start + 50]),
        ]
    return ("\n".join(lines) + "\n").encode()


def iwslt(folder: Path) -> None:
    texts = Texts("de", "en")
    members = {"de-en/README": b"IWSLT 2017\n"}
    for side, language in enumerate(texts.pair):
        sentences = [pair[side] for pair in texts.train]
        sentences[7] = "" if side else sentences[7]  # an empty line on one side
        sentences[9] += "\r and on"  # no end of a line
        members[f"de-en/train.tags.de-en.{language}"] = tags(sentences)
        kind = "refset" if side else "srcset"
        valid = [pair[side] + " R&D <x>" for pair in texts.valid]
        members[f"de-en/IWSLT17.TED.dev2010.de-en.{language}.xml"] = segments(
            valid, kind, language, xml=True
        )
        for number, year in enumerate(range(2010, 2016)):
            part = [pair[side] for pair in texts.test[2 * number : 2 * number + 2]]
            name = f"de-en/IWSLT17.TED.tst{year}.de-en.{language}.xml"
            members[name] = segments(part, kind, language, xml=True)
    write_tar(folder / "de-en.tgz", members)


def kftt(folder: Path) -> None:
    texts = Texts("ja", "en")
    members = {"kftt-data-1.0/README": b"KFTT\n"}
    for split, pairs in (("train", texts.train), ("dev", texts.valid), ("test", texts.test)):
        for language in texts.pair:
            content = texts.lines(pairs, language)
            members[f"kftt-data-1.0/data/orig/kyoto-{split}.{language}"] = content
            members[f"kftt-data-1.0/data/tok/kyoto-{split}.{language}"] = b"not these\n"
    tune = {f"kftt-data-1.0/data/orig/kyoto-tune.{language}": b"x\n" for language in texts.pair}
    write_tar(folder / "kftt-data-1.0.tar.gz", {**members, **tune})


def wmt_tests(folder: Path, texts: Texts, valid: str | None, stem: str) -> None:
    """WMT's archive of all its test sets, here with those of one language pair."""
    members = {"dev/newstest2011.cs": b"jina veta\n"}
    for side, language in enumerate(texts.pair):
        kind, role = ("refset", "ref") if side else ("srcset", "src")
        if valid is None:
            members[f"dev/newstest2013.{language}"] = texts.lines(texts.valid, language)
        else:
            members[f"dev/{valid}-{role}.{language}.sgm"] = segments(
                [pair[side] for pair in texts.valid], kind, language, xml=False
            )
        members[f"dev/{stem}-{role}.{language}.sgm"] = segments(
            [pair[side] + " A & B" for pair in texts.test], kind, language, xml=False
        )
    write_tar(folder / "wmt19-dev.tgz", members)


def parallel(texts: Texts, stem: str, pairs: list[tuple[str, ...]]) -> dict[str, bytes]:
    """Two files of a sentence a line, and those of another pair of languages."""
    members = {f"{stem}.{language}": texts.lines(pairs, language) for language in texts.pair}
    folder, slash, _ = stem.rpartition("/")
    return {f"{folder}{slash}other.cs-en.cs": b"veta\n", **members}


def wmt16(folder: Path) -> None:
    texts = Texts("ro", "en")
    half = TRAIN // 2
    stem = "training-parallel-ep-v8/europarl-v8.ro-en"
    write_tar(folder / "training-parallel-ep-v8.tgz", parallel(texts, stem, texts.train[:half]))
    members = parallel(texts, "SETIMES.en-ro", texts.train[half:])
    write_zip(folder / "SETIMES.en-ro.txt.zip", {"README": b"OPUS\n", **members})
    wmt_tests(folder, texts, "newsdev2016-roen", "newstest2016-roen")


def wmt14(folder: Path) -> None:
    texts = Texts("en", "de")
    third = TRAIN // 3
    parts = {
        "training-parallel-europarl-v7.tgz": "training/europarl-v7.de-en",
        "training-parallel-commoncrawl.tgz": "commoncrawl.de-en",
        "training-parallel-nc-v9.tgz": "training/news-commentary-v9.de-en",
    }
    for number, (file, stem) in enumerate(parts.items()):
        pairs = texts.train[number * third : (number + 1) * third]
        write_tar(folder / file, parallel(texts, stem, pairs))
    wmt_tests(folder, texts, None, "newstest2014-deen")


def wmt_en_ru(folder: Path) -> None:
    texts = Texts("en", "ru")
    quarter = TRAIN // 4
    quarters = [texts.train[number * quarter : (number + 1) * quarter] for number in range(4)]
    write_tar(
        folder / "training-parallel-commoncrawl.tgz",
        parallel(texts, "commoncrawl.ru-en", quarters[0]),
    )
    stem = "training-parallel-nc-v13/news-commentary-v13.ru-en"
    write_tar(folder / "training-parallel-nc-v13.tgz", parallel(texts, stem, quarters[1]))
    titles = "".join(f"{russian} ||| {english}\n" for english, russian in quarters[2])
    write_tar(folder / "wiki-titles.tgz", {"wiki/ru-en/wiki.ru-en": titles.encode()})
    write_zip(folder / "1mcorpus.zip", parallel(texts, "corpus.en_ru.1m", quarters[3]))
    wmt_tests(folder, texts, None, "newstest2014-ruen")


DOCUMENT, FILM = 15, 30  # pairs of a file of subtitles, and of a film, which has two


def opensubtitles(folder: Path) -> None:
    """OPUS's Moses files, and the alignment with the overlap in time of each link.

    Every fifth pair overlaps too little; some links have no second side, and no line.
    """
    texts = Texts("en", "ru")
    pairs = texts.train + texts.valid + texts.test
    ids, links = [], ['<?xml version="1.0" encoding="utf-8"?>', '<cesAlign version="1.0">']
    for start in range(0, len(pairs), DOCUMENT):
        film = start // FILM
        documents = [f"{language}/1999/{film}/{start + 7}.xml.gz" for language in texts.pair]
        links.append(f'<linkGrp targType="s" fromDoc="{documents[0]}" toDoc="{documents[1]}" >')
        for number in range(start, min(start + DOCUMENT, len(pairs))):
            left, right = f"{number} {number + 1}" if number % 3 == 0 else str(number), str(number)
            overlap = "0.899" if number % 5 == 0 else "0.900" if number % 5 == 1 else "1.000"
            links.append(
                f'  <link id="SL{number}" xtargets="{left};{right}" overlap="{overlap}" />'
            )
            links.append(f'  <link id="SL{number}b" xtargets="{number};" />')
            ids.append("\t".join([*documents, left, right]))
        links.append("</linkGrp>")
    links.append("</cesAlign>")
    with gzip.open(folder / "OpenSubtitles.en-ru.xml.gz", "wb") as file:
        file.write(("\n".join(links) + "\n").encode())
    members = {f"OpenSubtitles.en-ru.{x}": texts.lines(pairs, x) for x in texts.pair}
    members["OpenSubtitles.en-ru.ids"] = ("\n".join(ids) + "\n").encode()
    write_zip(folder / "OpenSubtitles.en-ru.txt.zip", {"README": b"OPUS\n", **members})


WRITERS = {
    "iwslt17_de_en": iwslt,
    "kftt_ja_en": kftt,
    "wmt16_ro_en": wmt16,
    "wmt14_en_de": wmt14,
    "wmt_en_ru": wmt_en_ru,
    "opensubtitles_en_ru": opensubtitles,
}


def write(recipe: str, folder: Path, writers: dict[str, Callable[[Path], None]] = WRITERS) -> Path:
    """Write the miniature archives of a recipe; the table of them, with true checksums."""
    folder.mkdir(parents=True, exist_ok=True)
    writers[recipe](folder)
    kinds = (".tgz", ".gz", ".zip", ".txt")
    archives = sorted(path for path in folder.iterdir() if path.suffix in kinds)
    return write_table(folder, archives)


def write_table(folder: Path, archives: list[Path], address: str = "-") -> Path:
    """A table like examples/corpora.tsv; ``address`` is where all archives are."""
    rows = ["file\tbytes\tchecksum\taddresses\thome page\tsource of the checksum"]
    for path in archives:
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        where = address if address == "-" else f"{address}/{path.name}"
        size = path.stat().st_size
        rows.append(
            f"{path.name}\t{size}\tsha256:{checksum}\t{where}\thttps://example.org\tmade here"
        )
    table = folder / "corpora.tsv"
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return table
