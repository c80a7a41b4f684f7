"""Miniature archives in the layout and format of the corpora that the recipes read.

The English side is from the shipped corpus. Other languages are made from its Spanish side, word by
word, in the language's letters, so that there is something to learn.
"""

import csv
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "examples" / "bible_es_en" / "data" / "bible.es-en.tsv.xz"
TRAIN, VALID, TEST = 240, 16, 12
# A model with few updates does not end its sentences, so the recipes' scripts need these
TRIAL = {"GENERATION_OPTIONS": "--max-len-b 20", "SPEED_SENTENCES": "2", "SPEED_REPEATS": "1"}

LETTERS = "abcdefghijklmnñopqrstuvwxyzáéíóúü"
JAPANESE = "あびくでえふぐへいじけるむんにおぷきらすとうぶわしやぜアエイオウユ、。"
ALPHABETS = {
    "de": str.maketrans("ñáóú", "ßäöü"),
    "ro": str.maketrans("ñáóú", "șăîț"),
    "ru": str.maketrans(LETTERS, "абкдефгхижклмнньпкрстувушийзаэиоу"),
    "ja": str.maketrans(f"{LETTERS},.", JAPANESE, " "),
}


def in_language(text: str, language: str) -> str:
    """Spanish text in the letters of another language."""
    if language in ("ru", "ja"):
        text = text.lower()
    return text.translate(ALPHABETS.get(language, {}))


def corpus() -> list[tuple[str, str]]:
    """Every (Spanish, English) verse of the shipped corpus."""
    with lzma.open(CORPUS, "rt", encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row[3].strip(), row[4].strip()) for row in rows]


def verses(number: int) -> list[tuple[str, str]]:
    """Short verses from all over the corpus, without repetitions."""
    short = [pair for pair in corpus()[::7] if max(map(len, pair)) < 110]
    return list(dict.fromkeys(short))[:number]


class Texts:
    """Pairs of a miniature corpus in two languages."""

    def __init__(self, source: str, target: str) -> None:
        self.pair = source, target
        pairs = [
            tuple(in_language(es if language != "en" else en, language) for language in self.pair)
            for es, en in verses(TRAIN + VALID + TEST)
        ]
        self.train = pairs[:TRAIN]
        self.valid = pairs[TRAIN : TRAIN + VALID]
        self.test = pairs[TRAIN + VALID :]

    def parts(self, number: int) -> list[list[tuple[str, ...]]]:
        """The training pairs in this number of parts."""
        size = TRAIN // number
        return [self.train[start : start + size] for start in range(0, TRAIN, size)]

    def lines(self, pairs: list[tuple[str, ...]], language: str) -> bytes:
        side = self.pair.index(language)
        return "".join(f"{pair[side]}\n" for pair in pairs).encode()


def lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text, split only at "\\n"."""
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
    """An mteval file in the format of WMT (not quite SGML, nothing escaped) or IWSLT (XML)."""
    lines = [f'<{kind} setid="mini" srclang="any" trglang="{language}">']
    lines += ['<doc docid="d1" genre="news" origlang="en">', "<title>A & B</title>", "<p>"]
    for number, text in enumerate(sentences, 1):
        lines.append(f'<seg id="{number}"> {escape(text) if xml else text} </seg>')
    lines += ["</p>", "</doc>", f"</{kind}>"]
    if xml:
        lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<mteval>", *lines, "</mteval>"]
    return ("\n".join(lines) + "\n").encode()


def tags(sentences: list[str]) -> bytes:
    """IWSLT's training file: talks with lines of tags between the sentences."""
    lines = []
    for start in range(0, len(sentences), 50):
        lines += [f"<url>http://www.ted.com/talks/talk_{start}</url>", f"<talkid>{start}</talkid>"]
        lines += ["<title>Somebody: Something</title>", "<description>A talk.</description>"]
        lines += [f" {text} " for text in sentences[start : start + 50]]
    return ("\n".join(lines) + "\n").encode()


def iwslt(folder: Path) -> None:
    texts = Texts("de", "en")
    members = {"de-en/README": b"IWSLT 2017\n"}
    for side, language in enumerate(texts.pair):
        sentences = [pair[side] for pair in texts.train]
        sentences[7] = "" if side else sentences[7]  # an empty line on one side
        sentences[9] += "\r and on"  # not the end of a line
        sentences[11] += " R&amp;D"  # escaped as in its XML files
        members[f"de-en/train.tags.de-en.{language}"] = tags(sentences)
        kind = "refset" if side else "srcset"
        valid = [pair[side] + " R&D <x>" for pair in texts.valid]
        parts = {"dev2010": valid}
        for number, year in enumerate(range(2010, 2016)):
            parts[f"tst{year}"] = [pair[side] for pair in texts.test[2 * number : 2 * number + 2]]
        for name, part in parts.items():
            path = f"de-en/IWSLT17.TED.{name}.de-en.{language}.xml"
            members[path] = segments(part, kind, language, xml=True)
    write_tar(folder / "de-en.tgz", members)


def kftt(folder: Path) -> None:
    """Write the tokenised text in tok/, with a training text without long pairs, and orig/."""
    texts, data = Texts("ja", "en"), "kftt-data-1.0/data"
    members = {"kftt-data-1.0/README": b"KFTT\n"}
    for split, pairs in (("train.cln", texts.train), ("dev", texts.valid), ("test", texts.test)):
        for language in texts.pair:
            content = texts.lines(pairs, language)
            members[f"{data}/tok/kyoto-{split}.{language}"] = content
            members[f"{data}/orig/kyoto-{split.removesuffix('.cln')}.{language}"] = content.title()
            members[f"{data}/tok/kyoto-tune.{language}"] = b"not these\n"
    write_tar(folder / "kftt-data-1.0.tar.gz", members)


# The archives of each recipe with the files of the training text, and validation and test sets
WMT = {
    "wmt16_ro_en": (
        "training-parallel-ep-v8.tgz training-parallel-ep-v8/europarl-v8.ro-en SETIMES.en-ro.txt.zip SETIMES.en-ro",
        "newsdev2016-roen newstest2016-roen",
    ),
    "wmt14_en_de": (
        "training-parallel-europarl-v7.tgz training/europarl-v7.de-en "
        "training-parallel-commoncrawl.tgz commoncrawl.de-en "
        "training-parallel-nc-v9.tgz training/news-commentary-v9.de-en",
        "newstest2013 newstest2014-deen",
    ),
    "wmt_en_ru": (
        "training-parallel-commoncrawl.tgz commoncrawl.ru-en "
        "training-parallel-nc-v13.tgz training-parallel-nc-v13/news-commentary-v13.ru-en "
        "wiki-titles.tgz wiki/ru-en/wiki.ru-en 1mcorpus.zip corpus.en_ru.1m",
        "newstest2013 newstest2014-ruen",
    ),
    "wmt_en_fr": (
        "training-parallel-commoncrawl.tgz commoncrawl.fr-en "
        "training-parallel-europarl-v7.tgz training/europarl-v7.fr-en "
        "training-parallel-nc-v9.tgz training/news-commentary-v9.fr-en",
        "newstest2013 newstest2014-fren",
    ),
}


def wmt(recipe: str, folder: Path) -> None:
    """Write archives of training text and of WMT's test sets, each with other files, too."""
    training, (valid, test) = (words.split() for words in WMT[recipe])
    files, stems = training[::2], training[1::2]
    texts = Texts(*recipe.split("_")[-2:])
    for file, stem, pairs in zip(files, stems, texts.parts(len(files)), strict=True):
        members = {f"{stem}.{language}": texts.lines(pairs, language) for language in texts.pair}
        if stem.startswith("wiki"):
            members = {stem: "".join(f"{ru} ||| {en}\n" for en, ru in pairs).encode()}
        write_some = write_zip if file.endswith(".zip") else write_tar
        write_some(folder / file, {f"{stem[:-5]}cs-en.cs": b"veta\n", **members})
    members = {"dev/newstest2011.cs": b"jina veta\n"}
    for side, language in enumerate(texts.pair):
        kind, role = ("refset", "ref") if side else ("srcset", "src")
        if valid == "newstest2013":  # newer sets have no plain text
            members[f"dev/{valid}.{language}"] = texts.lines(texts.valid, language)
        for name, pairs, more in ((valid, texts.valid, ""), (test, texts.test, " A & B")):
            sentences = [pair[side] + more for pair in pairs]
            packed = segments(sentences, kind, language, xml=False)
            members[f"dev/{name}-{role}.{language}.sgm"] = packed
    whole = {x.replace("dev/", "test-full/"): text for x, text in members.items() if "2014" in x}
    write_tar(folder / "wmt14-test-full.tgz", whole)
    write_tar(folder / "wmt19-dev.tgz", {x: t for x, t in members.items() if "2014" not in x})


DOCUMENT, FILM = 15, 30  # pairs in a subtitle file, and in a film, which has two files


def opensubtitles(folder: Path) -> None:
    """Write OPUS's Moses files, and the alignment with the overlap in time of each link.

    Every fifth pair overlaps too little; some links have neither a second side nor a line.
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
            overlap = {0: "0.899", 1: "0.900"}.get(number % 5, "1.000")
            link = f'id="SL{number}" xtargets="{left};{right}" overlap="{overlap}"'
            links.append(f"  <link {link} />")
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
    **{recipe: partial(wmt, recipe) for recipe in WMT},
    "opensubtitles_en_ru": opensubtitles,
}


def write(recipe: str, folder: Path, writers: dict[str, Callable[[Path], None]] = WRITERS) -> Path:
    """Write a recipe's miniature archives, and return the table of them with their checksums."""
    folder.mkdir(parents=True, exist_ok=True)
    writers[recipe](folder)
    kinds = (".tgz", ".gz", ".zip", ".txt")
    archives = sorted(path for path in folder.iterdir() if path.suffix in kinds)
    return write_table(folder, archives)


def write_table(folder: Path, archives: list[Path], address: str = "-") -> Path:
    """Write a table like examples/corpora.tsv; ``address`` is where all archives are."""
    rows = ["file\tbytes\tchecksum\taddresses\thome page\tsource of the checksum"]
    for path in archives:
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        where = address if address == "-" else f"{address}/{path.name}"
        known = f"{path.name}\t{path.stat().st_size}\tsha256:{checksum}"
        rows.append(f"{known}\t{where}\thttps://example.org\tmade here")
    table = folder / "corpora.tsv"
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return table
