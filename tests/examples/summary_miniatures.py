"""Miniature archives for the summary recipes, in the layout and format of the real ones."""

import gzip
import hashlib
import re
from pathlib import Path

from tests.examples.miniatures import TEST, TRAIN, VALID, verses, write_tar

ARTICLE = 6  # verses in an article; the first two are its summary


def articles(number: int) -> list[list[str]]:
    """Articles of English verses, which do not share a verse."""
    texts = [english for _, english in verses(ARTICLE * number)]
    return [texts[start : start + ARTICLE] for start in range(0, len(texts), ARTICLE)]


def story(article: list[str]) -> str:
    """A ``.story`` file: paragraphs separated by empty lines, followed by the highlights."""
    caption = "A picture of nothing"  # a line without a full stop
    highlights = [text.rstrip(".,;:!?") for text in article[:2]]
    parts = ["(CNN)" + article[0], caption, *article[1:]]
    parts += [part for text in highlights for part in ("@highlight", text)]
    return "\n\n".join(parts)


STORIES = {"train": 60, "valid": 6, "test": 6}
NAMES = {"train": "all_train.txt", "valid": "all_val.txt", "test": "all_test.txt"}


def cnn_dm(folder: Path) -> None:
    """Write stories of two papers under the SHA-1 of their addresses, and a list for each split.

    One training story has no article, and one archive has a story that no list names.
    """
    texts = iter(articles(sum(STORIES.values())))
    papers: dict[str, dict[str, bytes]] = {"cnn": {}, "dailymail": {}}
    for split, number in STORIES.items():
        urls = []
        for index in range(number):
            paper = "dailymail" if index % 3 else "cnn"
            url = f"http://web.archive.org/web/{index}id_/http://www.{paper}.com/{split}/{index}"
            urls.append(url)
            text = story(next(texts))
            if (split, index) == ("train", 7):
                text = text[text.index("@highlight") :]
            name = hashlib.sha1(url.encode()).hexdigest()
            papers[paper][f"{paper}/stories/{name}.story"] = text.encode()
        (folder / NAMES[split]).write_text("".join(f"{url}\n" for url in urls))
    papers["cnn"]["cnn/stories/0000.story"] = b"Not this.\n\n@highlight\n\nNo\n"
    for paper, members in papers.items():
        # In another order than in the lists
        write_tar(folder / f"{paper}_stories.tgz", dict(sorted(members.items(), reverse=True)))


def as_gigaword(text: str) -> str:
    """Lower-case words separated by spaces."""
    return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))


def gigaword(folder: Path) -> None:
    """Write Rush et al.'s archive: compressed training text, and four references for DUC 2004."""
    texts = [(as_gigaword(es_en[1]), es_en[1]) for es_en in verses(TRAIN + 2 * VALID + 2 * TEST)]
    pairs = [(article, " ".join(article.split()[:6])) for article, _ in texts]
    train, valid = pairs[:TRAIN], pairs[TRAIN : TRAIN + 2 * VALID]
    test, duc = pairs[-2 * TEST : -TEST], texts[-TEST:]
    train = [(article.replace("lord", "<unk>"), title) for article, title in train]
    train[5] = (train[5][0], "")
    test = [(article.replace("lord", "UNK"), title) for article, title in test]

    def lines(column: list[str]) -> bytes:
        return "".join(f"{text}\n" for text in column).encode()

    def columns(rows: list[tuple[str, str]]) -> list[bytes]:
        return [lines(list(column)) for column in zip(*rows, strict=True)]

    article, title = columns(train)
    members = {
        "sumdata/train/train.article.txt.gz": gzip.compress(article, mtime=0),
        "sumdata/train/train.title.txt.gz": gzip.compress(title, mtime=0),
    }
    article, title = columns(valid)
    members["sumdata/train/valid.article.filter.txt"] = article
    members["sumdata/train/valid.title.filter.txt"] = title
    members["sumdata/Giga/input.txt"], members["sumdata/Giga/task1_ref0.txt"] = columns(test)
    members["sumdata/DUC2003/input.txt"] = b"not this\n"
    members["sumdata/DUC2004/input.txt"] = lines([article for article, _ in duc])
    for number in range(4):
        some = [" ".join(text.split()[: 4 + number]) for _, text in duc]
        members[f"sumdata/DUC2004/task1_ref{number}.txt"] = lines(some)
    write_tar(folder / "sent-summary.tar.gz", members)


WRITERS = {"cnn_dm": cnn_dm, "gigaword": gigaword}
