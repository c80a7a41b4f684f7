"""What the tokens of a dictionary are: parts of words, rare, closing a question or a statement.

Words are put together from the dictionary's own marks. SentencePiece marks the token that
begins a word with ``▁``; a token that is this mark alone begins the word that the next token
goes on with, also where that one is unknown. subword-nmt marks a token that the next one goes
on from with ``@@`` at its end. In a dictionary without either every token is a word. An unknown
token otherwise begins a word, and so does a marker such as ``<unk-3>``, which stands for one;
the end of a sentence is part of none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.models.copy_transformer import markers_of

SENTENCEPIECE, SUBWORD_NMT, WORDS = "sentencepiece", "subword_nmt", "words"

MARK = "\u2581"
_QUESTIONS = frozenset("?？؟;՞")
_STOPS = frozenset({".", "。", "．", "…", "...", "।", "։", "۔"})
# What may stand behind the last punctuation mark of a sentence: quotes and brackets
_CLOSING = frozenset("\"'”’»›)]}」』）】“‘")
_GREEK_QUESTION = ";"

# Words that ask, by language, without those that mostly do not, such as ``que``
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
    """How a fairseq dictionary marks parts of words, found from its symbols."""
    symbols = dictionary.symbols[dictionary.nspecial :]
    if any(symbol.startswith(MARK) for symbol in symbols):
        return SENTENCEPIECE
    return SUBWORD_NMT if any(symbol.endswith("@@") for symbol in symbols) else WORDS


def without_marks(word: str) -> str:
    """A word of subwords put together, without their marks."""
    return word.replace("@@", "").replace(MARK, "") or word


@dataclass(frozen=True)
class TokenTable:
    """Facts on every token of a dictionary, as tensors ``(vocabulary,)`` indexed by token.

    ``begins``: it can begin a word; ``goes_on``: the next one goes on the word; ``rank``: from 0,
    the most frequent of the training data, -1 of special and unknown symbols; ``ending``: 1 asks, 2
    states; ``closing``: a quote or bracket that may stand behind a sentence's end. ``letters``: its
    letters, with a space for anything else; ``question_words``: those of the language."""

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
        """The table of a fairseq dictionary."""
        kind = subword_kind(dictionary)
        symbols = dictionary.symbols
        known = range(dictionary.nspecial, len(symbols) - markers_of(dictionary))
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
        """The table on a device."""
        facts: dict[str, Any] = {
            name: one.to(device) for name, one in vars(self).items() if isinstance(one, Tensor)
        }
        return replace(self, **facts)

    def words(self, tokens: Tensor, special: Tensor) -> Tensor:
        """The number of the word that each token ``(batch, length)`` is part of, rising from left to
        right; -1 at special tokens, which are padding and ends of sentences."""
        starts = self.begins[tokens].clone()
        follows = self.goes_on[tokens[:, :-1]]
        if self.kind == SENTENCEPIECE:  # others know by themselves whether they begin a word
            follows = follows & (self.rank[tokens[:, 1:]] < 0)
        # A word begins behind padding and ends of sentences, whatever its first token looks like
        starts[:, 1:] = (starts[:, 1:] & ~follows) | special[:, :-1]
        starts[:, :1] = True
        return starts.cumsum(dim=1).masked_fill(special, -1)

    def interrogative(self, tokens: Tensor, words: Tensor) -> Tensor | None:
        """Which tokens ``(batch, length)`` are of a word that asks, by :meth:`words`; None where the
        language has no list."""
        if not self.question_words:
            return None
        rows = []
        for row, numbers in zip(tokens.tolist(), words.tolist(), strict=True):
            texts: dict[int, str] = {-1: ""}
            for token, number in zip(row, numbers, strict=True):
                if number >= 0:
                    texts[number] = texts.get(number, "") + self.letters[token]
            asking = {n for n, text in texts.items() if self.question_words & {*text.split()}}
            # Not from the mark before the word, as in ``¿Qué``
            pairs = zip(row, numbers, strict=True)
            rows.append([n in asking and bool(self.letters[t].strip()) for t, n in pairs])
        return torch.tensor(rows, device=tokens.device)


def _ranks(dictionary: Any, known: range) -> list[int]:
    ranks = [-1] * len(dictionary)
    for rank, index in enumerate(sorted(known, key=lambda index: -dictionary.count[index])):
        ranks[index] = rank
    return ranks


def _ending(text: str, questions: frozenset[str]) -> int:
    """Whether a token is a final punctuation mark; a closing quote may stand behind it."""
    mark = text.rstrip("".join(_CLOSING))
    if mark and set(mark) <= questions | {"!", "¿", "¡", "."} and mark[-1] in questions:
        return INTERROGATIVE
    return DECLARATIVE if mark in _STOPS else NEITHER


def final_punctuation(table: TokenTable, tokens: Tensor, special: Tensor) -> tuple[Tensor, Tensor]:
    """The place of the mark at the end of each sentence, behind which stand only quotes and brackets,
    and what it is, both ``(batch,)``. ``special`` are padding and ends of sentences."""
    skipped = special | table.closing[tokens]
    positions = torch.arange(tokens.size(1), device=tokens.device)
    last = torch.where(skipped, -1, positions).amax(dim=1)
    ending = table.ending[tokens.gather(1, last.clamp(min=0)[:, None]).squeeze(1)]
    return last.clamp(min=0), torch.where(last >= 0, ending, NEITHER)


def rarest(ranks: Tensor) -> tuple[Tensor, Tensor]:
    """The ranks of the two rarest tokens, of ranks ``(batch, length)``: each ``(batch, 1)``; where there
    is but one, both are its, and -1 without any."""
    first = ranks.amax(dim=1, keepdim=True)
    second = ranks.masked_fill(ranks == first, -1).amax(dim=1, keepdim=True)
    return first, torch.where(second < 0, first, second)


def rarest_so_far(ranks: Tensor) -> tuple[Tensor, Tensor]:
    """Likewise of the tokens up to each place: each ``(batch, length)``."""
    first = ranks.cummax(dim=1).values
    length = ranks.size(1)
    is_read = torch.ones(length, length, dtype=torch.bool, device=ranks.device).tril()
    others = is_read & (ranks[:, None] < first[:, :, None])
    second = ranks[:, None].expand_as(others).masked_fill(~others, -1).amax(dim=2)
    return first, torch.where(second < 0, first, second)
