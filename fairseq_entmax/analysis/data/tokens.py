"""Properties of a dictionary's tokens: parts of words, rarity, ends of questions and statements.

The dictionary's marks show which tokens form a word. In SentencePiece, ``▁`` begins a token that
begins a word; a token that is this mark alone begins a word that the next token continues, even
if that token is unknown. In subword-nmt, ``@@`` ends a token that the next one continues. In a
dictionary without either mark, every token is a word. Any other unknown token begins a word, and
so does a marker such as ``<unk-3>``, which stands for a word. The end of a sentence is part of no
word."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.models.copy_transformer import markers_of

SENTENCEPIECE, SUBWORD_NMT, WORDS = "sentencepiece", "subword_nmt", "words"

MARK = "\u2581"
# Of a masked language model: in the place of a word, but no word itself
MASK = "<mask>"
_QUESTIONS = frozenset("?？؟;՞")
_STOPS = frozenset({".", "。", "．", "…", "...", "।", "։", "۔"})
# Quotes and brackets, which may follow the last punctuation mark of a sentence
_CLOSING = frozenset("\"'”’»›)]}」』）】“‘")
_GREEK_QUESTION = ";"

# Interrogative words by language, without words that are mostly used otherwise, such as ``que``
_QUESTION_WORDS = {
    "de": "wer wen wem wessen was wann wo wohin woher warum wieso weshalb wie welche welcher welches",
    "en": "who whom whose what which when where why how",
    "es": "qué quién quiénes cuál cuáles cuándo cuánto cuánta cuántos cuántas cómo dónde adónde",
    "fr": "qui quoi quel quelle quels quelles quand où comment pourquoi combien",
    "it": "chi cosa quale quali quando dove come perché quanto quanta quanti quante",
    "pt": "quem quê qual quais quando onde aonde como porquê quanto quanta quantos quantas",
    "ru": "кто кого кому чей что чего чему какой какая какие когда где куда откуда почему как сколько",
}

NEITHER, INTERROGATIVE, DECLARATIVE = 0, 1, 2


def subword_kind(dictionary: Any) -> str:
    """Return how a fairseq dictionary marks parts of words, judged by its symbols."""
    symbols = dictionary.symbols[dictionary.nspecial :]
    if any(symbol.startswith(MARK) for symbol in symbols):
        return SENTENCEPIECE
    return SUBWORD_NMT if any(symbol.endswith("@@") for symbol in symbols) else WORDS


def without_marks(word: str) -> str:
    """Return a word, joined from subwords, without their marks."""
    return word.replace("@@", "").replace(MARK, "") or word


@dataclass(frozen=True)
class TokenTable:
    """Properties of every token of a dictionary, as tensors ``(vocabulary,)`` indexed by token.

    ``begins``: it can begin a word. ``goes_on``: the next token continues the word. ``rank``: by
    frequency in the training data, from 0; -1 for special symbols and markers. ``ending``: 1 ends a
    question, 2 a statement. ``closing``: a quote or bracket that may follow the end. ``letters``:
    its casefolded letters, with spaces for other characters. ``question_words``: those of the
    language."""

    kind: str
    begins: Tensor
    goes_on: Tensor
    rank: Tensor
    ending: Tensor
    closing: Tensor
    letters: tuple[str, ...]
    question_words: frozenset[str]

    @classmethod
    def of(cls, dictionary: Any, language: str | None = None) -> TokenTable:
        kind = subword_kind(dictionary)
        symbols = dictionary.symbols
        words = range(dictionary.nspecial, len(symbols) - markers_of(dictionary))
        known = {*words} - {dictionary.indices.get(MASK)}
        bare = [symbol.removeprefix(MARK).removesuffix("@@") for symbol in symbols]
        begins = [
            kind != SENTENCEPIECE or index not in known or symbol.startswith(MARK)
            for index, symbol in enumerate(symbols)
        ]
        goes_on = [
            symbol == MARK if kind == SENTENCEPIECE else kind != WORDS and symbol.endswith("@@")
            for symbol in symbols
        ]
        questions = _QUESTIONS if language == "el" else _QUESTIONS - {_GREEK_QUESTION}
        return cls(
            kind,
            torch.tensor(begins),
            torch.tensor(goes_on),
            torch.tensor(_ranks(dictionary, known)),
            torch.tensor([_ending(text, questions) for text in bare]),
            torch.tensor([bool(text) and set(text) <= _CLOSING for text in bare]),
            tuple("".join(c if c.isalpha() else " " for c in text.casefold()) for text in bare),
            frozenset(_QUESTION_WORDS.get(language or "", "").split()),
        )

    def to(self, device: torch.device) -> TokenTable:
        facts: dict[str, Any] = {
            name: one.to(device) for name, one in vars(self).items() if isinstance(one, Tensor)
        }
        return replace(self, **facts)

    def words(self, tokens: Tensor, special: Tensor) -> Tensor:
        """Return the number of each token's word, ``(batch, length)``, rising from left to right;
        -1 at ``special`` tokens, which are padding and ends of sentences."""
        starts = self.begins[tokens].clone()
        follows = self.goes_on[tokens[:, :-1]]
        if self.kind == SENTENCEPIECE:  # known tokens show whether they begin a word
            follows = follows & (self.rank[tokens[:, 1:]] < 0)
        # A word begins after padding and ends of sentences, whatever its first token is
        starts[:, 1:] = (starts[:, 1:] & ~follows) | special[:, :-1]
        starts[:, :1] = True
        return starts.cumsum(dim=1).masked_fill(special, -1)

    def interrogative(self, tokens: Tensor, words: Tensor) -> Tensor | None:
        """Whether each token ``(batch, length)`` is part of an interrogative word, given the result
        of :meth:`words`; None if there is no list for the language."""
        if not self.question_words:
            return None
        rows = []
        for row, numbers in zip(tokens.tolist(), words.tolist(), strict=True):
            texts: dict[int, str] = {-1: ""}
            for token, number in zip(row, numbers, strict=True):
                if number >= 0:
                    texts[number] = texts.get(number, "") + self.letters[token]
            asking = {n for n, text in texts.items() if self.question_words & {*text.split()}}
            # Without a mark before the word, as in ``¿Qué``
            pairs = zip(row, numbers, strict=True)
            rows.append([n in asking and bool(self.letters[t].strip()) for t, n in pairs])
        return torch.tensor(rows, device=tokens.device)


def _ranks(dictionary: Any, known: set[int]) -> list[int]:
    ranks = [-1] * len(dictionary)
    for rank, index in enumerate(sorted(known, key=lambda i: (-dictionary.count[i], i))):
        ranks[index] = rank
    return ranks


def _ending(text: str, questions: frozenset[str]) -> int:
    """Return what a token ends: a question, a statement or neither; it may have closing quotes."""
    mark = text.rstrip("".join(_CLOSING))
    if mark and set(mark) <= questions | {"!", "¿", "¡", "."} and mark[-1] in questions:
        return INTERROGATIVE
    return DECLARATIVE if mark in _STOPS else NEITHER


def final_punctuation(table: TokenTable, tokens: Tensor, special: Tensor) -> tuple[Tensor, Tensor]:
    """Return the position of each sentence's last token, closing quotes and brackets aside, and
    what it ends, both ``(batch,)``. ``special`` marks padding and ends of sentences."""
    skipped = special | table.closing[tokens]
    positions = torch.arange(tokens.size(1), device=tokens.device)
    last = torch.where(skipped, -1, positions).amax(dim=1)
    ending = table.ending[tokens.gather(1, last.clamp(min=0)[:, None]).squeeze(1)]
    return last.clamp(min=0), torch.where(last >= 0, ending, NEITHER)


def rarest(ranks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ranks of the two rarest tokens, each ``(batch, 1)``, from ranks ``(batch,
    length)``. If only one token has a rank, it is returned twice; without any, both are -1."""
    first = ranks.amax(dim=1, keepdim=True)
    second = ranks.masked_fill(ranks == first, -1).amax(dim=1, keepdim=True)
    return first, torch.where(second < 0, first, second)
