"""Miniature archives in the format that the recipes for language models read."""

import re
from pathlib import Path

from tests.examples.miniatures import TEST, TRAIN, VALID, verses, write_zip

ARTICLE = 12  # paragraphs of an article


def as_wikitext(text: str) -> str:
    """Words separated by spaces, with WikiText's marks for hyphens."""
    return " ".join(re.findall(r"\w+|[^\w\s]", text.replace("-", " @-@ ")))


def articles(paragraphs: list[str]) -> bytes:
    """Lines in the archive's format, with a space at both ends, and empty lines too."""
    lines = []
    for number, paragraph in enumerate(paragraphs):
        if number % ARTICLE == 0:
            lines += [" ", f" = Article {number // ARTICLE} = ", " "]
        lines.append(f" {paragraph} ")
    return "".join(f"{line}\n" for line in lines).encode()


def wikitext(folder: Path) -> None:
    """Write the archive of words; rare words are already <unk> in all three texts."""
    texts = [as_wikitext(english) for _, english in verses(TRAIN + VALID + TEST)]
    known = set(" ".join(texts[:TRAIN]).split())
    texts = [" ".join(w if w in known else "<unk>" for w in text.split()) for text in texts]
    texts[3] += " <unk>"
    parts = {"train": texts[:TRAIN], "valid": texts[TRAIN:-TEST], "test": texts[-TEST:]}
    members = {f"wikitext-103/wiki.{name}.tokens": articles(part) for name, part in parts.items()}
    write_zip(folder / "wikitext-103-v1.zip", {"wikitext-103/": b"", **members})
